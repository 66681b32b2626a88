package override

import (
	"testing"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// cleanAt cleans the page at a in its own batch.
func (s *script) cleanAt(a logstore.Addr) (moved bool) {
	s.t.Helper()
	s.must(s.batch(func(b *Batch) (err error) {
		moved, err = b.Clean(a)
		return err
	}))
	return moved
}

// The goroutine that lists the live pages of a segment need not hold the token until it cleans them: a page that has
// died meanwhile is not moved.
func TestCleanLeavesTheDead(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	a := s.p.table.find(s.leafOf(40)).place()
	require.True(t, s.s.IsLive(a))
	s.put(40)
	require.False(t, s.cleanAt(a), "it is dirty anyway")
	s.flushAll()
	require.False(t, s.s.IsLive(a))
	require.False(t, s.cleanAt(a))
	require.Empty(t, s.p.dirty.pages)
	s.must(s.settle())
}

// The name in a page's mux area leads to the page until its parent is folded. After that its address does.
func TestCleanFindsTheName(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 80)...)
	s.flushAll()
	byName := s.p.table.find(s.leafOf(40)).place()
	require.True(t, s.cleanAt(byName))
	s.flushAll()
	require.False(t, s.s.IsLive(byName))
	require.Positive(t, s.foldAll())
	s.flushAll()
	s.must(s.reclaim())
	id := s.leafOf(40)
	require.True(t, logstore.IsAddr(id))
	require.True(t, s.cleanAt(id))
	require.Len(t, s.p.dirty.pages, 1)
	s.flushAll()
	require.False(t, s.s.IsLive(id))
	s.must(s.settle())
	s.crash(vfs.KeepNone)
	s.must(s.settle())
}
