package shard

import (
	"bytes"
	"math"
	"slices"

	"flashdbm/servers/store"
)

// A memberFile is the file of a replica, and the file of a copy that will replace it.
type memberFile struct {
	kept *simDisk
	copy *simDisk
	full bool

	meanwhile func() // called in the middle of calls: other threads of the store may be at work
}

// A simDisk keeps all entries that were applied. A crash keeps a prefix of them that has at least the synced ones.
type simDisk struct {
	f       *memberFile
	applied []store.Entry
	states  []appliedState
	synced  int
}

func (f *memberFile) fresh(forCopy bool) *simDisk {
	if forCopy {
		f.copy = &simDisk{f: f}
		return f.copy
	}
	if f.kept == nil {
		f.kept = &simDisk{f: f}
	}
	return f.kept
}

func (f *memberFile) keep() { f.kept, f.copy = f.copy, nil }

// durable returns the newest entry that the next life certainly finds.
func (f *memberFile) durable() uint64 {
	if f.kept == nil || f.kept.synced == 0 {
		return 0
	}
	return f.kept.states[f.kept.synced-1].Seq
}

func (f *memberFile) crash(c *clusterSim) {
	f.copy, f.full = nil, false
	if d := f.kept; d != nil {
		n := d.synced + c.rand(len(d.states)-d.synced+1)
		f.kept = &simDisk{f: f, states: slices.Clone(d.states[:n]), synced: n}
		if n > 0 {
			f.kept.applied = slices.Clone(d.applied[:d.states[n-1].entries])
		}
	}
}

func (d *simDisk) State() (s store.State, err error) {
	if n := len(d.states); n > 0 {
		s = d.states[n-1].State
	}
	return s, nil
}

func (d *simDisk) Apply(entries []store.Entry, s store.State) error {
	if d.f.full && len(entries) > 0 {
		return store.ErrFull
	}
	for i := range entries {
		e := entries[i]
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		d.applied = append(d.applied, e)
	}
	d.states = append(d.states, appliedState{s, len(d.applied)})
	return nil
}

func (d *simDisk) Sync() error { d.synced = len(d.states); return nil }

func (d *simDisk) Get(hash uint64, key []byte) (r store.Record, found bool, err error) {
	for i := len(d.applied) - 1; i >= 0; i-- {
		e := &d.applied[i]
		if e.Drop && e.Hash <= hash && hash <= e.Last {
			return r, false, nil
		}
		if !e.Empty && !e.Drop && bytes.Equal(e.Key, key) {
			return e.Record, !e.Remove, nil
		}
	}
	return r, false, nil
}

func (d *simDisk) Scan(first, last uint64, yield func(hash uint64, r *store.Record) bool) error {
	var list []store.Entry
	seen := map[string]bool{}
	var drops []store.Entry
	for i := len(d.applied) - 1; i >= 0; i-- {
		e := &d.applied[i]
		if e.Drop {
			drops = append(drops, *e)
		}
		if e.Empty || e.Drop || slices.ContainsFunc(drops, func(d store.Entry) bool { return d.Hash <= e.Hash && e.Hash <= d.Last }) {
			continue
		}
		if !seen[string(e.Key)] && !e.Remove && first <= e.Hash && e.Hash <= last {
			list = append(list, *e)
		}
		seen[string(e.Key)] = true
	}
	slices.SortFunc(list, func(a, b store.Entry) int {
		if a.Hash < b.Hash {
			return -1
		}
		return 1
	})
	d.f.meanwhile()
	for i := range list {
		if !yield(list[i].Hash, &list[i].Record) {
			return nil
		}
	}
	return nil
}

func (d *simDisk) Prefetch([]store.Fetched) error { return nil }

func (d *simDisk) Room() int64  { return math.MaxInt64 / 4 }
func (d *simDisk) Close() error { return nil }
