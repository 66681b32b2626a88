package override

import (
	"fmt"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// TestRecallOfFamily: one page of a family is written early and recalled. Then this page and the other pages of the
// family have to be written.
func TestRecallOfFamily(t *testing.T) {
	records := recordMaker{fixed: func(int, uint32) (btree.ValueKind, int) { return btree.Inline, 500 }}
	for i := range 200 {
		records.keys = append(records.keys, fmt.Appendf(nil, "%04d%0430d", i/8, i))
	}
	s := startScript(t, records, false)
	var even []int
	for k := 0; k < 200; k += 2 {
		even = append(even, k)
	}
	s.put(even...)
	s.flushAll()
	key := -1
	for k := 1; k < 200 && key < 0; k += 2 { // until a leaf is split
		s.put(k)
		if s.p.dirty.grown > 0 {
			key = k
		} else {
			s.flushAll()
		}
	}
	require.Positive(t, key, "no family")
	c := s.beginCommit()
	c.change(&s.records, key, false)
	s.must(s.reserved(64, func() error {
		g := s.s.Begin(logstore.RecordGroup)
		s.inGroup[g.Number()] = c.seq
		s.remember(c.seq, c.state)
		s.must(s.writeRecords(g, c))
		s.must(s.s.Sync())
		b := s.p.Begin(c.seq)
		_, err := btree.Apply(b, Root, s.treeOps(c.ops))
		s.must(err)
		f := s.p.StartEarly()
		_, err = f.WriteEarly(AllLevels)
		s.must(err)
		require.Len(t, f.early, 1)
		s.publish(c.seq, g.Number(), c.state)
		f.Recall()
		return nil
	}))
	s.must(s.verifyNewest())
	s.flushPart()
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}
