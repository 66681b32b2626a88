package override

import (
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// grouped commits a change that should become a page group, and reports whether it did.
func (s *script) grouped(del bool, keys ...int) bool {
	s.t.Helper()
	before := s.s.Counters().PageGroups
	s.run(true, del, keys...)
	return s.s.Counters().PageGroups > before
}

// A page group is a base: redo starts after it. It contains the pages that were left dirty.
func TestPageGroupIsABase(t *testing.T) {
	s := newScript(t, true)
	s.put(span(0, 80)...)
	s.flushAll()
	s.put(10)
	s.put(50)
	require.True(t, s.grouped(false, 30))
	require.Zero(t, s.p.DirtyBytes())
	require.Equal(t, s.s.LastGroup(), s.p.Base())
	s.must(s.checkInstalled())
	s.put(31)
	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.EqualValues(t, 1, s.p.DirtyPages(), "one record group is redone")
	s.must(s.settle())
}

// A page group may carry runs, which are live from then on.
func TestPageGroupWithRuns(t *testing.T) {
	s := newScript(t, true)
	s.put(0)
	s.flushAll()
	require.True(t, s.grouped(false, runKey, largeKey))
	s.must(s.checkInstalled())
	s.must(s.sync())
	s.crash(vfs.KeepNone)
	require.Zero(t, s.p.DirtyBytes())
	s.must(s.settle())
}

// A change that only a flush can record keeps a batch from becoming a page group.
func TestPageGroupIsIllegal(t *testing.T) {
	filled := func(t *testing.T) *script {
		s := newScript(t, true)
		s.put(append(span(0, 80), runKey, largeKey)...)
		s.flushAll()
		return s
	}
	t.Run("a page removed", func(t *testing.T) {
		require.False(t, filled(t).grouped(true, span(9, 30)...))
	})
	t.Run("a name born", func(t *testing.T) {
		s := filled(t)
		born := s.p.born.Load()
		for k := 80; s.p.born.Load() == born; k++ {
			s.put(k)
		}
		require.LessOrEqual(t, s.p.DirtyPages(), leftoverPages)
		require.False(t, s.grouped(false, 1))
	})
	t.Run("a value dropped", func(t *testing.T) {
		s := filled(t)
		require.False(t, s.grouped(true, runKey))
		require.False(t, s.grouped(false, 1), "since the last flush")
		s.flushAll()
		require.True(t, s.grouped(false, 1))
	})
	t.Run("a name folded away", func(t *testing.T) {
		s := filled(t)
		require.NotZero(t, s.foldAll())
		require.False(t, s.grouped(false, 1))
	})
	t.Run("a flush in flight", func(t *testing.T) {
		s := filled(t)
		s.put(40)
		s.flushUntil(true)
		require.False(t, s.grouped(false, 1))
		s.must(s.flushWhole())
		require.True(t, s.grouped(false, 1))
	})
	t.Run("a checkpoint in flight", func(t *testing.T) {
		s := filled(t)
		s.must(s.checkpointStep())
		require.False(t, s.grouped(false, 1))
		s.checkpoint()
		require.True(t, s.grouped(false, 1))
	})
	t.Run("many pages dirty", func(t *testing.T) {
		s := filled(t)
		s.put(1, 20, 40, 60)
		require.Greater(t, s.p.DirtyPages(), leftoverPages)
		require.False(t, s.grouped(false, 1))
	})
	t.Run("more pages than redo", func(t *testing.T) {
		s := filled(t)
		c := s.beginCommit()
		for _, k := range []int{1, 20, 40} {
			c.change(&s.records, k, false)
		}
		before := s.s.Counters().PageGroups
		s.must(s.write(c, true, 2))
		require.Equal(t, before, s.s.Counters().PageGroups)
	})
}

// Readers of batches before a page group still see what they saw.
func TestReadersAcrossPageGroups(t *testing.T) {
	s := newScript(t, false)
	s.put(span(0, 60)...)
	s.flushAll()
	s.put(10) // its version is left to the page group
	r := s.reader()
	require.True(t, s.grouped(false, 20))
	require.True(t, s.grouped(false, 10, 20))
	s.must(s.reclaim())
	s.must(s.recheck(r))
	r.slot.Release()
	s.must(s.reclaim())
	require.Zero(t, s.p.MemoryBytes())
	s.must(s.settle())
}
