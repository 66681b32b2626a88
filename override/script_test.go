package override

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// script drives a model by hand. Values of keys up to 89 are in leaves, about three to a leaf; values of keys
// from 90 on are in runs, from 95 on in extents.
type script struct {
	*model
	t *testing.T
}

const (
	inlineKeys = 90
	runKey     = 90
	largeKey   = 95
	scriptKeys = 100
)

func newScript(t *testing.T, durable bool) *script {
	records := recordMaker{fixed: func(key int, version uint32) (btree.ValueKind, int) {
		switch {
		case key < inlineKeys:
			return btree.Inline, 1000 + int(version)%200
		case key < largeKey:
			return btree.Run, 6000 + int(version)%5000
		}
		return btree.Extents, 60000 + int(version)%20000
	}}
	for i := range scriptKeys {
		records.keys = append(records.keys, fmt.Appendf(nil, "key %04d", i))
	}
	return startScript(t, records, durable)
}

// newHighScript returns a script with a tree of three levels, because most separators are long.
func newHighScript(t *testing.T) *script {
	records := recordMaker{fixed: func(int, uint32) (btree.ValueKind, int) { return btree.Inline, 1000 }}
	for i := range scriptKeys {
		records.keys = append(records.keys, fmt.Appendf(nil, "%04d%0470d", i/3, i%3))
	}
	s := startScript(t, records, false)
	s.put(span(0, scriptKeys)...)
	return s
}

func startScript(t *testing.T, records recordMaker, durable bool) *script {
	m, err := newModel(rand.New(rand.NewPCG(1, 1)), records, durable)
	require.NoError(t, err)
	s := &script{m, t}
	t.Cleanup(s.release)
	return s
}

func span(from, to int) (keys []int) {
	for k := from; k < to; k++ {
		keys = append(keys, k)
	}
	return keys
}

// run commits a change of some keys.
func (s *script) run(paged bool, del bool, keys ...int) {
	s.t.Helper()
	c := s.beginCommit()
	for _, k := range keys {
		c.change(&s.records, k, del)
	}
	require.NoError(s.t, s.write(c, paged, len(keys)))
}

func (s *script) put(keys ...int) { s.t.Helper(); s.run(false, false, keys...) }
func (s *script) del(keys ...int) { s.t.Helper(); s.run(false, true, keys...) }

// must fails the test if a step returned an error.
func (s *script) must(err error) {
	s.t.Helper()
	require.NoError(s.t, err)
}

// flushAll flushes all that is dirty and syncs.
func (s *script) flushAll() {
	s.t.Helper()
	s.must(s.sync())
	s.must(s.flushWhole())
	s.must(s.sync())
}

// flushUntil takes a flush to the point before its first part is written, or before it is installed.
func (s *script) flushUntil(written bool) {
	s.t.Helper()
	s.must(s.flushStep())
	for s.flush.written != written {
		s.must(s.flushStep())
	}
}

func (s *script) checkpoint() {
	s.t.Helper()
	s.must(s.checkpointStep())
	for s.check != nil {
		s.must(s.checkpointStep())
	}
}

// foldAll makes all possible folds once, and returns how many names were retired.
func (s *script) foldAll() (retired int) {
	s.t.Helper()
	s.must(s.planFolds())
	s.must(s.batch(func(b *Batch) error {
		for _, id := range s.plan {
			n, err := b.Fold(id)
			if err != nil {
				return err
			}
			retired += n
		}
		return nil
	}))
	s.plan = nil
	return retired
}

// reader opens a reader of the newest batch that holds what it finds.
func (s *script) reader() *modelReader {
	s.t.Helper()
	slot := s.registry.Acquire(&s.appliedSeq)
	r := &modelReader{slot: slot, snap: s.p.At(slot.Seq()), state: s.state(slot.Seq())}
	s.must(s.hold(r))
	return r
}

// crash cuts the power. The policy says whether unsynced data is lost or kept.
func (s *script) crash(policy vfs.Policy) {
	s.t.Helper()
	s.must(s.recoverFrom(&crash{s.mem.Crash(policy, 1), s.s.Durable(), s.sound}, true))
}

// borrows reports whether the leaf of a key has cells in a page image.
func (s *script) borrows(key int) bool {
	n, err := s.p.nodeAt(s.leafOf(key), s.appliedSeq.Load())
	s.must(err)
	return n.Borrows()
}

// leafOf returns the name of the leaf of a key in the newest tree.
func (s *script) leafOf(key int) (id btree.PageID) {
	s.t.Helper()
	snap := s.p.At(s.appliedSeq.Load())
	s.must(s.walk(snap, func(page btree.PageID, n btree.Node) error {
		for i := 0; n.IsLeaf() && i < n.Count(); i++ {
			if string(n.Cell(i).Key()) == string(s.records.keys[key]) {
				id = page
			}
		}
		return nil
	}))
	return id
}

// aloneAt moves the leaf of key 1 to a place whose segment has no other live page, and returns the place.
func (s *script) aloneAt() logstore.Addr {
	s.t.Helper()
	s.put(span(0, 80)...)
	s.flushAll()
	s.put(1)
	s.flushAll()
	for range 3 {
		s.put(span(10, 80)...)
		s.flushAll()
	}
	e := s.p.table.find(s.leafOf(1))
	require.NotNil(s.t, e)
	return e.place()
}

// reuse writes until the segment of a was entered again or may be, and reports whether that took at most the given
// number of rounds. Its changes stay dirty.
func (s *script) reuse(a logstore.Addr, rounds int, between func()) bool {
	s.t.Helper()
	n := int64(a) / int64(s.s.SegmentPages())
	s.segments[n] = false
	for range rounds {
		s.put(span(60, 80)...)
		between()
		s.p.Reclaim(s.view)
		if s.segments[n] || s.s.Segments()[n].State == logstore.Free {
			return true
		}
	}
	return false
}
