package dbm

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"flashdbm/logstore/vfs"
)

var (
	wholeRuns  = flag.Int("whole.runs", 4, "number of runs of TestWholeModel")
	wholeFirst = flag.Uint64("whole.first", 1, "seed of the first run of TestWholeModel")
	wholeActs  = flag.Int("whole.acts", 200, "acts of a run of TestWholeModel")
	wholeTime  = flag.Duration("whole.time", time.Second, "longest time of a run of TestWholeModel, almost")
	wholeLook  = flag.Bool("whole.look", false, "TestWholeModel compares everything after each act")
	wholeTrace = flag.Bool("whole.trace", false, "TestWholeModel says what it does")
)

// TestWholeModel draws from all public operations and compares every result with a model: overlapping transactions in
// several keyspaces, records that expire, ranges, loads, batches and asynchronous commits, snapshots that stay open,
// readers beside the writer, backups, increments, a follower and a copy, compaction, reopening with other options,
// small memory and full files.
func TestWholeModel(t *testing.T) {
	for i := range *wholeRuns {
		seed := *wholeFirst + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &wholeWorld{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 12)), eye: rand.New(rand.NewPCG(seed, 13)), state: &wholeState{map[string]int{}, map[int]map[string]wholeRecord{0: {}}}}
			if err := w.run(); err != nil {
				t.Fatalf("seed %d, act %d: %v", seed, w.act, err)
			}
		})
	}
}

// A wholeWorld is a database, its model, and everything that is open at the same time.
type wholeWorld struct {
	t       *testing.T
	dir     string
	rng     *rand.Rand
	eye     *rand.Rand // used by comparisons, so that more comparisons do not change the script
	db      *DB
	opts    Options
	act     int
	files   int
	numbers int // of keyspaces
	spaces  bool
	times   bool

	state   *wholeState
	commits []*wholeCommit
	txs     []*wholeTx
	snaps   []wholeSnap
	beside  *DB

	backups  []wholeBackup // the full one and increments that follow it
	copy     *DB
	copyAt   int // index of the backup whose state the copy has
	unneeded int // conflicts without a reason
	refused  int // writes that found no room
}

// A wholeSnap is a snapshot, and transactions begun at it; one of these may outlive it.
type wholeSnap struct {
	snap  *Snapshot
	txs   []*Tx
	state *wholeState
}

type wholeBackup struct {
	token Token
	data  []byte
	state *wholeState
}

func (w *wholeWorld) log(format string, args ...any) {
	if *wholeTrace {
		fmt.Printf("%s %d: "+format+"\n", append([]any{time.Now().Format("05.000"), w.act}, args...)...)
	}
}

func (w *wholeWorld) run() (err error) {
	w.opts = w.drawOptions()
	if err := w.open(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, w.endAll())
		if e := w.db.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close: %w", e))
		}
		if w.copy != nil {
			err = errors.Join(err, w.copy.Close())
		}
	}()
	began := time.Now()
	for w.act = range *wholeActs {
		if time.Since(began) > *wholeTime { // on a full file, writes wait for the snapshots that hold space
			break
		}
		if err := w.do(); err != nil {
			return err
		}
		if *wholeLook {
			if err := w.look(); err != nil {
				return err
			}
		}
	}
	return w.look()
}

func (w *wholeWorld) drawOptions() Options {
	o := Options{Durability: Durability(w.rng.IntN(3)), MemoryLimit: []int64{1 << 20, 2 << 20, 8 << 20, 0}[w.rng.IntN(4)]}
	if w.rng.IntN(2) == 0 {
		o.RedoLimit = 1 << 20
	}
	if w.rng.IntN(3) == 0 {
		o.MaxFileSize = []int64{4 << 20, 16 << 20, 40 << 20}[w.rng.IntN(3)]
	}
	if w.rng.IntN(4) == 0 {
		o.MaxSnapshotAge = time.Hour
	}
	if w.rng.IntN(3) == 0 {
		o.FlushInterval = time.Millisecond
	}
	return o
}

func (w *wholeWorld) open() (err error) {
	w.log("open with %+v", w.opts)
	o := w.opts.engine()
	o.CutFrom = []int64{10, 300, 4096}[w.rng.IntN(3)]
	o.Shares.Keys = []int64{0, 0, -1, 2000}[w.rng.IntN(4)]
	w.db, err = openEngine(unsyncedFS{vfs.OS()}, filepath.Join(w.dir, "db"), o)
	return err
}

// do makes one random step.
func (w *wholeWorld) do() error {
	acts := []struct {
		name  string
		share int
		do    func() error
	}{
		{"begin", 15, w.begin}, {"step", 60, w.stepAny}, {"end", 14, w.end}, {"alone", 14, w.alone}, {"async", 6, w.async},
		{"batch", 8, w.batch}, {"load", 3, w.load}, {"catalog", 5, w.catalog}, {"snapshot", 5, w.snapshot}, {"look at a snapshot", 8, w.lookBack},
		{"look", 6, w.look}, {"beside", 4, w.lookBeside}, {"work", 8, w.work}, {"backup", 3, w.backup}, {"restore", 2, w.restore},
		{"copy", 3, w.increment}, {"follow", 1, w.follow}, {"reopen", 3, w.reopen},
	}
	sum := 0
	for _, a := range acts {
		sum += a.share
	}
	n := w.rng.IntN(sum)
	for _, a := range acts {
		if n -= a.share; n < 0 {
			w.log("%s", a.name)
			if err := a.do(); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			break
		}
	}
	return nil
}

// lacksRoom reports whether an error is one that the options allow for.
func (w *wholeWorld) lacksRoom(err error) bool {
	if err != nil && strings.Contains(err.Error(), "small segments of this file") || errors.Is(err, ErrFull) && w.opts.MaxFileSize > 0 || errors.Is(err, ErrSnapshotTooOld) && (w.opts.MaxFileSize > 0 || w.opts.MemoryLimit > 0) {
		w.refused++
		w.log("  refused: %v", err)
		return true
	}
	return false
}

func (w *wholeWorld) newTx(tx *Tx, opts TxOptions) *wholeTx {
	return &wholeTx{tx: tx, opts: opts, begun: len(w.commits), state: w.state.clone(), own: map[int]bool{}, handles: map[int]*Tx{},
		did: newWholeCommit(), reads: map[wholeKey]bool{}, spaces: w.spaces, times: w.times}
}

func (w *wholeWorld) begin() error {
	if len(w.txs) > 4 {
		return w.end()
	}
	opts := TxOptions{Serializable: w.rng.IntN(3) == 0, CheckWrites: w.rng.IntN(3) == 0}
	tx, err := w.db.Begin(opts)
	if err != nil {
		return err
	}
	w.txs = append(w.txs, w.newTx(tx, opts))
	return nil
}

func (w *wholeWorld) stepAny() error {
	if len(w.txs) == 0 {
		return w.begin()
	}
	i := w.rng.IntN(len(w.txs))
	x := w.txs[i]
	for range 1 + w.rng.IntN(4) {
		if err := w.step(x); w.lacksRoom(err) {
			w.txs = slices.Delete(w.txs, i, i+1)
			return x.tx.Rollback()
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (w *wholeWorld) end() error {
	if len(w.txs) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.txs))
	x := w.txs[i]
	w.txs = slices.Delete(w.txs, i, i+1)
	if w.rng.IntN(8) == 0 {
		return x.tx.Rollback()
	}
	h := x.tx
	for _, other := range x.handles { // any of them ends the transaction
		if w.rng.IntN(2) == 0 {
			h = other
		}
	}
	return w.commit(x, h.Commit)
}

// commit commits a transaction and compares the result with the result that the model expects.
func (w *wholeWorld) commit(x *wholeTx, commit func() error) error {
	must, may := x.conflicts(w.commits[x.begun:])
	err := commit()
	w.log("  commit: %v (must conflict: %q, may: %v)", err, must, may)
	switch {
	case errors.Is(err, ErrConflict):
		if !may { // possible reasons: keys that share a slot, or a ring that was too short, see internal/commit
			w.unneeded++
		}
		return nil
	case w.lacksRoom(err):
		return nil
	case err != nil:
		return err
	case must != "":
		return fmt.Errorf("committed in spite of a conflict: %s", must)
	}
	w.committed(x)
	return nil
}

// committed applies what a transaction did to the model.
func (w *wholeWorld) committed(x *wholeTx) {
	if !x.writes {
		return
	}
	w.state = x.merge(w.state)
	w.log("  changed %.300s; keyspaces %v", fmt.Sprint(x.did), w.state.names)
	w.commits = append(w.commits, x.did)
	for k := range x.did.changed {
		if x.state.tables[k.space][k.key].life == instant {
			time.Sleep(3 * time.Millisecond)
			w.expired()
			return
		}
	}
}

// expired notes that background work may delete expired records from now on: any transaction that has read may
// conflict.
func (w *wholeWorld) expired() {
	c := newWholeCommit()
	c.any = true
	w.commits = append(w.commits, c)
}

// alone runs one transaction by one of the methods of DB and Keyspace.
func (w *wholeWorld) alone() error {
	var x *wholeTx
	fn := func(tx *Tx) error {
		x = w.newTx(tx, TxOptions{})
		for range 1 + w.rng.IntN(6) {
			if err := w.step(x); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	names := slices.Sorted(maps.Keys(w.state.names))
	switch k, v := wholeAnyKey(w.rng), wholeValue(w.rng); w.rng.IntN(5) {
	case 0:
		err = w.db.Update(fn)
	case 1:
		err = w.db.UpdateContext(w.t.Context(), TxOptions{Serializable: w.rng.IntN(2) == 0}, fn)
	case 2:
		x = w.newTx(nil, TxOptions{})
		x.put(0, string(k), wholeRecord{value: string(v)})
		err = w.db.Put(k, v)
	case 3:
		x = w.newTx(nil, TxOptions{})
		k = k[:min(len(k), 65000)]
		x.put(0, string(k), wholeRecord{string(v), hour})
		had := w.times
		if err = w.db.PutTTL(k, v, time.Hour); err == nil && !had {
			w.times, w.spaces = true, true
			w.expired()
		}
	case 4:
		if len(names) == 0 {
			return nil
		}
		name := names[w.rng.IntN(len(names))]
		x = w.newTx(nil, TxOptions{})
		x.put(w.state.names[name], string(k), wholeRecord{value: string(v)})
		err = w.db.Keyspace(name).Put(k, v)
	}
	if w.lacksRoom(err) {
		return nil
	}
	if err == nil {
		w.committed(x)
	}
	return err
}
