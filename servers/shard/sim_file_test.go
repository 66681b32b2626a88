package shard

import (
	"bytes"
	"math"
	"slices"
	"time"

	"flashdbm/dbm"
	"flashdbm/internal/opener"
	"flashdbm/logstore/vfs"
	"flashdbm/servers/store"
)

// simFile is a store.File with exact crashes: it keeps all entries that were applied, and a crash keeps a prefix of
// these that has at least the entries that were synced.
type simFile struct {
	w       *simulation
	applied []store.Entry
	state   store.State // as of the last Apply
	states  []appliedState
	synced  int  // number of states that are durable
	full    bool // Apply fails
	failing bool // the next sync fails, and so does every call after it

	// If there is a disk, the entries go to a flashdbm file on it as well. Its content after a crash is compared with
	// the entries kept here.
	mem  *vfs.Mem
	disk store.File
}

// memBytes is the size of the disk: the engine maps files one GiB at a time. It is address space; it takes memory
// only where something was written.
const memBytes = 1 << 30

// open opens the file on the disk.
func (f *simFile) open() {
	opts := store.FileOptions(0)
	opts.FlushInterval = time.Hour // the simulation decides when to sync
	db, err := opener.On(f.mem, "shard.fdbm", opts)
	if err != nil {
		f.w.violation("open: %v", err)
		return
	}
	f.disk = store.NewFile(db.(*dbm.DB), 0)
}

// close ends the use of the disk.
func (f *simFile) close() {
	if f.disk != nil {
		f.disk.Close()
		f.mem.Release()
	}
}

// appliedState is record 0 after a transaction, and the number of entries up to then.
type appliedState struct {
	store.State
	entries int
}

func (f *simFile) State() (store.State, error) {
	if f.disk != nil {
		return f.disk.State()
	}
	return f.state, nil
}

func (f *simFile) Apply(entries []store.Entry, s store.State) error {
	switch {
	case f.failing:
		return store.ErrFailed
	case f.full:
		return store.ErrFull
	}
	if f.disk != nil {
		if err := f.disk.Apply(entries, s); err != nil {
			return err
		}
	}
	for i := range entries {
		e := &entries[i]
		want := f.state.Seq + 1 + uint64(i)
		if e.Seq != want {
			f.w.violation("entry %d is applied where %d is due", e.Seq, want)
		}
		f.applied = append(f.applied, *e)
		f.w.noteApplied(e)
	}
	f.state = s
	f.states = append(f.states, appliedState{s, len(f.applied)})
	return nil
}

func (f *simFile) Sync() error {
	if f.failing {
		return store.ErrFailed
	}
	n := len(f.states)
	if f.w.store != nil && f.w.rand(3) == 0 { // meanwhile the committer is at work
		f.w.store.StepCommitter(f.w.server.Now())
	}
	if f.disk != nil {
		if err := f.disk.Sync(); err != nil {
			return err
		}
	}
	f.synced = n
	return nil
}

// durable returns the newest entry that every crash keeps.
func (f *simFile) durable() uint64 {
	if f.synced == 0 {
		return 0
	}
	return f.states[f.synced-1].Seq
}

// crash keeps a prefix of the applied entries.
func (f *simFile) crash() {
	n := f.synced + f.w.rand(len(f.states)-f.synced+1)
	if f.disk != nil {
		n = f.crashDisk()
	}
	f.states = f.states[:n]
	f.synced = n
	all := f.applied
	f.state, f.applied = store.State{}, nil
	if n > 0 {
		last := f.states[n-1]
		f.state = last.State
		f.applied = all[:last.entries:last.entries]
	}
	if f.disk != nil {
		f.compare()
	}
}

// crashDisk cuts the power or kills the process, and returns how many of the transactions the file on the disk still
// has.
func (f *simFile) crashDisk() int {
	old := f.mem
	clone := old.Clone()
	f.mem = clone
	if f.w.rand(2) == 0 {
		all := vfs.Policies()
		f.mem = clone.Crash(all[f.w.rand(len(all))], uint64(f.w.rand(1<<30)))
		clone.Release()
	}
	f.disk.Close()
	old.Release()
	f.open()
	state, err := f.disk.State()
	if err != nil {
		f.w.violation("record 0 after a crash: %v", err)
	}
	for n := len(f.states); n >= f.synced; n-- {
		if n == 0 && state == (store.State{}) || n > 0 && f.states[n-1].State == state {
			return n
		}
	}
	f.w.violation("after a crash the file has %+v, which is no prefix with all that was synced", state)
	return f.synced
}

// compare checks that the file on the disk has exactly the records that the kept entries produce.
func (f *simFile) compare() {
	n := 0
	f.disk.Scan(0, math.MaxUint64, func(_ uint64, r *store.Record) bool {
		n++
		if want, found := f.find(r.Key); !found || want.Version != r.Version || want.Expiry != r.Expiry || !bytes.Equal(want.Value, r.Value) {
			f.w.violation("after a crash the file has version %d of %s instead of %d", r.Version, r.Key, want.Version)
		}
		return true
	})
	for i := range simKeys {
		if _, found := f.find([]byte(simKey(i))); found {
			n--
		}
	}
	if n != 0 {
		f.w.violation("after a crash the file has %d records too many", n)
	}
}

func (f *simFile) find(key []byte) (r store.Record, found bool) {
	for i := len(f.applied) - 1; i >= 0; i-- {
		if e := &f.applied[i]; bytes.Equal(e.Key, key) {
			return e.Record, !e.Remove
		}
	}
	return r, false
}

func (f *simFile) Prefetch([]store.Fetched) error { return nil }

func (f *simFile) Get(hash uint64, key []byte) (store.Record, bool, error) {
	if f.disk != nil {
		return f.disk.Get(hash, key)
	}
	r, found := f.find(key)
	return r, found, nil
}

func (f *simFile) Scan(first, last uint64, yield func(hash uint64, r *store.Record) bool) error {
	defer func() {
		if f.w.store != nil && f.w.rand(3) == 0 { // meanwhile the committer is at work
			f.w.store.StepCommitter(f.w.server.Now())
		}
	}()
	if f.disk != nil {
		return f.disk.Scan(first, last, yield)
	}
	type found struct {
		hash uint64
		store.Record
	}
	var list []found
	seen := map[string]bool{}
	for i := len(f.applied) - 1; i >= 0; i-- {
		e := &f.applied[i]
		if !seen[string(e.Key)] && !e.Remove && first <= e.Hash && e.Hash <= last {
			list = append(list, found{e.Hash, e.Record})
		}
		seen[string(e.Key)] = true
	}
	slices.SortFunc(list, func(a, b found) int {
		if a.hash < b.hash {
			return -1
		}
		return 1
	})
	for i := range list {
		if !yield(list[i].hash, &list[i].Record) {
			return nil
		}
	}
	return nil
}

func (f *simFile) Room() int64  { return math.MaxInt64 }
func (f *simFile) Close() error { return nil }
