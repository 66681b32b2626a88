package dbm

import (
	"math"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func newSequence(t *testing.T, db *DB, block int64) *Sequence {
	t.Helper()
	s, err := db.Sequence([]byte("s"), block)
	require.NoError(t, err)
	return s
}

func nextOf(t *testing.T, s *Sequence) int64 {
	t.Helper()
	n, err := s.Next()
	require.NoError(t, err)
	return n
}

// TestSequence: numbers ascend from 1, each block takes one commit, and the record has the last reserved number.
func TestSequence(t *testing.T) {
	db := newDB(t, nil)
	s := newSequence(t, db, 4)
	commits := db.Stats().Commits
	for n := int64(1); n <= 9; n++ {
		require.Equal(t, n, nextOf(t, s))
	}
	require.EqualValues(t, 3, db.Stats().Commits-commits)
	v, err := db.Get([]byte("s"))
	require.NoError(t, err)
	require.Equal(t, "12", string(v))
	n, err := db.Increment([]byte("s"), 1)
	require.NoError(t, err)
	require.EqualValues(t, 13, n, "Increment beside it takes the next one")
	require.EqualValues(t, 10, nextOf(t, s))
}

// TestSequenceRelease: the rest of a block is returned, unless others have reserved numbers after it.
func TestSequenceRelease(t *testing.T) {
	db := newDB(t, nil)
	a, b := newSequence(t, db, 10), newSequence(t, db, 10)
	require.NoError(t, a.Release(), "of nothing")
	require.EqualValues(t, 1, nextOf(t, a))
	require.EqualValues(t, 2, nextOf(t, a))
	require.NoError(t, a.Release())
	require.EqualValues(t, 3, nextOf(t, b), "no gap")
	require.EqualValues(t, 13, nextOf(t, a))
	require.NoError(t, b.Release(), "a block was taken behind it")
	require.EqualValues(t, 23, nextOf(t, b))
	require.EqualValues(t, 14, nextOf(t, a))

	require.NoError(t, db.Put([]byte("s"), []byte("text")))
	require.NoError(t, a.Release())
	v, err := db.Get([]byte("s"))
	require.NoError(t, err)
	require.Equal(t, "text", string(v))
	_, err = a.Next()
	require.ErrorIs(t, err, ErrNotNumber)
}

// TestSequenceTogether: goroutines with the same sequence, or with two of the same key, never get the same number.
func TestSequenceTogether(t *testing.T) {
	db := newDB(t, &Options{Durability: Buffered})
	a, b := newSequence(t, db, 7), newSequence(t, db, 3)
	const goroutines, each = 4, 100
	numbers := make([][]int64, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		s := a
		if i%2 == 1 {
			s = b
		}
		wg.Go(func() {
			for range each {
				n, err := s.Next()
				if err != nil {
					t.Error(err)
					return
				}
				numbers[i] = append(numbers[i], n)
			}
		})
	}
	wg.Wait()
	seen := map[int64]bool{}
	for _, some := range numbers {
		for _, n := range some {
			require.False(t, seen[n], "%d twice", n)
			seen[n] = true
		}
	}
	require.Len(t, seen, goroutines*each)
}

// TestSequenceReopened: no number is given again, and after Release there is no gap.
func TestSequenceReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	want := int64(1)
	for _, release := range []bool{true, false, true} {
		db, err := Open(path, nil)
		require.NoError(t, err)
		s := newSequence(t, db, 100)
		require.Equal(t, want, nextOf(t, s))
		require.Equal(t, want+1, nextOf(t, s))
		if release {
			require.NoError(t, s.Release())
			want += 2
		} else {
			want += 100
		}
		require.NoError(t, db.Close())
	}
}

// TestSequenceEnds: what happens at the last number of 64 bits, and if a block does not fit.
func TestSequenceEnds(t *testing.T) {
	db := newDB(t, nil)
	put := func(n int64) { require.NoError(t, db.Put([]byte("s"), strconv.AppendInt(nil, n, 10))) }
	s := newSequence(t, db, 2)
	put(math.MaxInt64 - 2)
	require.EqualValues(t, math.MaxInt64-1, nextOf(t, s))
	require.EqualValues(t, math.MaxInt64, nextOf(t, s))
	_, err := s.Next()
	require.ErrorIs(t, err, ErrOverflow)
	require.NoError(t, s.Release())
	v, err := db.Get([]byte("s"))
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(math.MaxInt64, 10), string(v))

	put(math.MinInt64)
	require.EqualValues(t, math.MinInt64+1, nextOf(t, s))
	put(-1)
	require.EqualValues(t, math.MinInt64+2, nextOf(t, s), "the block goes on")
	require.EqualValues(t, 0, nextOf(t, s))
	require.NoError(t, s.Release())
	require.EqualValues(t, 1, nextOf(t, s))

	for _, block := range []int64{0, -1, math.MinInt64} {
		_, err := db.Sequence(nil, block)
		require.ErrorContains(t, err, "at least 1")
	}
	_, err = db.Sequence(make([]byte, maxKey+1), 1)
	require.ErrorIs(t, err, ErrKeyTooLarge)
}
