package ramp

import (
	"bytes"
	"maps"
	"math"
	"slices"

	"flashdbm/servers/store"
)

// simFile is a store.File. A crash keeps a prefix of the transactions that were applied, which has at least all that
// were synced.
type simFile struct {
	m       *simulation
	rows    map[string][]byte // as applied
	state   store.State
	base    map[string][]byte // as synced
	synced  store.State
	batches []simBatch // applied and not synced
	full    bool
	loose   bool // entries need not follow each other: those of a copy have the number of the entry after which the copy began
}

type simBatch struct {
	changes []store.Change
	state   store.State
}

func (f *simFile) State() (store.State, error) { return f.state, nil }

func (f *simFile) Apply(entries []store.Entry, s store.State) error {
	if f.full {
		return store.ErrFull
	}
	b := simBatch{state: s}
	for i := range entries {
		if want := f.state.Seq + 1 + uint64(i); entries[i].Seq != want && !f.loose {
			f.m.violation("entry %d is applied where %d is due", entries[i].Seq, want)
		}
		b.changes = append(b.changes, entries[i].Changes...)
	}
	change(f.rows, b.changes)
	f.state = s
	f.batches = append(f.batches, b)
	return nil
}

func change(rows map[string][]byte, list []store.Change) {
	for _, c := range list {
		if c.Delete {
			delete(rows, string(c.Key))
		} else {
			rows[string(c.Key)] = bytes.Clone(c.Value)
		}
	}
}

func (f *simFile) Sync() error {
	f.keep(len(f.batches))
	return nil
}

// keep makes the first n transactions durable.
func (f *simFile) keep(n int) {
	for _, b := range f.batches[:n] {
		change(f.base, b.changes)
		f.synced = b.state
	}
	f.batches = f.batches[n:]
}

func (f *simFile) crash() {
	f.keep(f.m.rand(len(f.batches) + 1))
	f.batches = nil
	f.rows, f.state = maps.Clone(f.base), f.synced
}

func (f *simFile) Row(key []byte) ([]byte, bool, error) {
	v, ok := f.rows[string(key)]
	return v, ok, nil
}

func (f *simFile) Range(from, to []byte, yield func(k, v []byte) error) error {
	var keys []string
	for k := range f.rows {
		if string(from) <= k && k < string(to) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := yield([]byte(k), f.rows[k]); err != nil {
			return err
		}
	}
	return nil
}

func (f *simFile) Prefetch([]store.Fetched) error { return nil }
func (f *simFile) Get(uint64, []byte) (store.Record, bool, error) {
	panic("the VersionFile has its own")
}
func (f *simFile) Scan(uint64, uint64, func(uint64, *store.Record) bool) error {
	panic("nobody scans a table of versions")
}
func (f *simFile) Room() int64  { return math.MaxInt64 }
func (f *simFile) Close() error { return nil }
