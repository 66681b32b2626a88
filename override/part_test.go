package override

import (
	"bytes"
	"fmt"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// growing returns a script with every second record on disk. A few records make a leaf, and a few leaves a parent.
func growing(t *testing.T) *script {
	records := recordMaker{fixed: func(int, uint32) (btree.ValueKind, int) { return btree.Inline, 500 }}
	for i := range 400 {
		records.keys = append(records.keys, fmt.Appendf(nil, "%04d%0430d", i/8, i))
	}
	s := startScript(t, records, false)
	var even []int
	for k := 0; k < 400; k += 2 {
		even = append(even, k)
	}
	s.put(even...)
	s.flushAll()
	return s
}

// TestPartsHaveWholeFamilies: no family is divided between two parts, because both would write it.
func TestPartsHaveWholeFamilies(t *testing.T) {
	s := growing(t)
	for k := 1; k < 400 && s.p.dirty.grown == 0; k += 2 { // until a leaf is split
		if s.put(k); s.p.dirty.grown == 0 {
			s.flushAll()
		}
	}
	s.put(398) // a leaf after the family
	slot := s.registry.Acquire(&s.appliedSeq)
	snap, in, parts, most := s.p.At(slot.Seq()), map[*family]int{}, 0, 0
	for from := []byte(nil); ; parts++ {
		part, err := snap.PlanPart(from, 1)
		s.must(err)
		leaves := map[*family]int{}
		for _, e := range part.leaves {
			if f := e.family; f != nil {
				leaves[f]++
				most = max(most, leaves[f])
				before, found := in[f]
				require.True(t, !found || before == parts, "parts %d and %d", before, parts)
				in[f] = parts
			}
		}
		if part.Next == nil || bytes.Compare(part.Next, from) <= 0 { // past the end of the tree
			break
		}
		from = part.Next
	}
	slot.Release()
	require.Greater(t, most, 1, "no family of two leaves")
	s.must(s.settle())
}

// TestFoldFamily: a parent with a family is folded and its family written, and only the wanted pages are renamed.
// Families below a folded node stay dirty: writing them too would write a large part of the tree.
func TestFoldFamily(t *testing.T) {
	s := growing(t)
	for k := 1; k < 200; k += 2 { // until there are nodes above the parents of leaves
		s.put(k)
	}
	s.flushAll()
	for range 3 { // so that the names of leaves, and then those of their parents, are addresses
		s.foldAll()
		s.flushAll()
	}
	count := func(is func(e *entry) bool) (n int) {
		for _, e := range s.p.dirty.pages {
			if is(e) {
				n++
			}
		}
		return n
	}
	heads := func() int {
		return count(func(e *entry) bool { return e.family != nil && e.family.parent == e && e.link.pinning() })
	}
	for k := 201; k < 400 && heads() == 0; k += 2 {
		if s.put(k); heads() == 0 {
			s.flushAll()
		}
	}
	grown := s.p.dirty.grown
	require.Positive(t, grown, "no leaf was split below a parent that was not")
	var upper, parents []btree.PageID
	s.must(s.walk(s.p.At(s.appliedSeq.Load()), func(id btree.PageID, n btree.Node) error {
		switch {
		case n.Level() > 1:
			upper = append(upper, id)
		case n.Level() == 1:
			parents = append(parents, id)
		}
		return nil
	}))
	require.EqualValues(t, grown, s.p.FamilyPages(parents))
	require.Zero(t, s.p.FamilyPages(upper))
	fold := func(ids []btree.PageID, want bool) {
		s.must(s.batch(func(b *Batch) error {
			for _, id := range ids {
				if _, err := b.FoldFamily(id, func(logstore.Addr) bool { return want }); err != nil {
					return err
				}
			}
			return nil
		}))
		s.must(s.verifyNewest())
	}
	fold(upper, true)
	require.Equal(t, grown, s.p.dirty.grown)
	require.Positive(t, heads())
	pinning := func() int {
		return count(func(e *entry) bool { return e.link.pinning() && e.newest().node.IsLeaf() })
	}
	before := pinning()
	require.Positive(t, before)
	fold(parents, false) // nothing to fold
	require.Equal(t, before, pinning())
	require.Equal(t, grown, s.p.dirty.grown)
	fold(parents, true)
	require.Zero(t, pinning())
	require.Zero(t, s.p.dirty.grown)
	s.flushPart()
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}

// TestRenameMust: if a parent was split, dirty pages below it do not keep their old segments from reuse by their
// names.
func TestRenameMust(t *testing.T) {
	s := growing(t)
	s.foldAll() // the names of leaves are addresses
	s.flushAll()
	pinning := func() (n int) {
		for _, e := range s.p.dirty.must {
			if e.must && e.link.pinning() && e.newest().node.IsLeaf() {
				n++
			}
		}
		return n
	}
	for k := 1; k < 400 && (pinning() < 2 || len(s.p.MustParents()) == 0); k += 2 {
		s.put(k)
	}
	before := pinning()
	require.Greater(t, before, 1, "no parent was split")
	s.must(s.batch(func(b *Batch) error {
		for _, id := range s.p.MustParents() {
			if _, err := b.RenameMust(id); err != nil {
				return err
			}
		}
		return nil
	}))
	require.Less(t, pinning(), before)
	s.flushPart()
	require.Zero(t, s.p.MustPages())
	s.must(s.verifyNewest())
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}

// TestBornPages: pages that splits have made are counted until they are written. Renamed pages are not counted twice.
func TestBornPages(t *testing.T) {
	s := growing(t)
	s.foldAll() // the names of leaves are addresses
	s.flushAll()
	require.Zero(t, s.p.BornPages())
	leaves := func() (n int64) {
		s.must(s.walk(s.p.At(s.appliedSeq.Load()), func(btree.PageID, btree.Node) error { n++; return nil }))
		return n
	}
	before := leaves()
	for k := 1; k < 100; k += 2 {
		s.put(k)
	}
	grown := leaves() - before
	require.Positive(t, grown)
	require.Equal(t, grown, s.p.BornPages())
	s.foldAll()
	require.Equal(t, grown, s.p.BornPages())
	s.flushAll()
	require.Zero(t, s.p.BornPages())
	s.must(s.settle())
}
