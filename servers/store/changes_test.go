package store

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChanges(t *testing.T) {
	list := []Change{{Key: []byte("a"), Value: []byte("x")}, {Key: []byte("bc"), Delete: true}, {Key: []byte("d"), Value: []byte{}}}
	b := AppendChanges([]byte("before"), list)[6:]
	require.Len(t, b, ChangesSize(list))
	got, err := ParseChanges(b)
	require.NoError(t, err)
	require.Equal(t, list, got)
	whole := map[int]bool{0: true, 10: true, 20: true}
	for i := range b {
		_, err := ParseChanges(b[:i])
		require.Equal(t, whole[i], err == nil, "%d bytes", i)
	}
	b[0], b[1], b[2], b[3] = 255, 255, 255, 255
	_, err = ParseChanges(b)
	require.ErrorIs(t, err, ErrCorrupt)
}

// TestScanOfVersions: a scan of a table of versions returns each record once, wherever its pieces end.
func TestScanOfVersions(t *testing.T) {
	f, err := OpenVersions(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	defer f.Close()
	want := map[string]string{}
	var changes []Change
	put := func(c Change) {
		changes = append(changes, c)
		want[string(c.Key)] = string(c.Value)
	}
	put(PutFloor(7))
	for i, h := range []uint64{0, 1, 2, 3, 1 << 63, math.MaxUint64 - 1, math.MaxUint64} {
		for ts := range uint64(3) {
			put(PutVersion(&Version{TS: ts + 1, Hash: h, Key: fmt.Appendf(nil, "key-%d", i), Value: []byte("v")}))
		}
		put(PutTransaction(&Transaction{TS: max(1, h), State: Prepared, Hashes: []uint64{h}}))
	}
	require.NoError(t, f.Apply([]Entry{{Seq: 1, Changes: changes}}, State{Seq: 1}))
	for _, step := range []int{1, 2, 1000} {
		got := map[string]string{}
		for from, more := uint64(0), true; more; {
			more = false
			n, last := 0, uint64(0)
			require.NoError(t, f.Scan(from, math.MaxUint64, func(place uint64, r *Record) bool {
				require.GreaterOrEqual(t, place, max(from, last))
				if n >= step && place != last {
					from, more = place, true
					return false
				}
				require.NotContains(t, got, string(r.Key))
				got[string(r.Key)] = string(r.Value)
				n, last = n+1, place
				return true
			}))
		}
		require.Equal(t, want, got)
	}
	n := 0
	require.NoError(t, f.Scan(0, versionsFrom-1, func(uint64, *Record) bool { n++; return true }))
	require.Equal(t, 7, n, "the floor, and six transactions with a timestamp of their own")
	n = 0
	require.NoError(t, f.Scan(versionsFrom, versionsFrom+1, func(uint64, *Record) bool { n++; return true }))
	require.Equal(t, 12, n)
}

// TestForgetFetches: requests that are forgotten get no answer, even if the file has already been read for them.
func TestForgetFetches(t *testing.T) {
	f, err := OpenVersions(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	s, err := Open(f, func() {}, 0)
	require.NoError(t, err)
	defer s.Close()
	now := time.Now()
	s.Fetch(1, []byte("looked up"))
	s.Fetch(2, []byte("waits"))
	s.StepFetcher(now)
	s.ForgetFetches()
	s.Fetch(3, []byte("new"))
	for range 6 {
		s.StepFetcher(now)
	}
	require.True(t, s.Brought())
	list := s.Fetches()
	require.Len(t, list, 1)
	require.Equal(t, "new", string(list[0].Key))
}

// TestTimestampOfTwo: two transactions of different clients have the same timestamp. The first one was finished and
// forgotten. The second one does not make the versions of the first one prepared.
func TestTimestampOfTwo(t *testing.T) {
	f, err := OpenVersions(filepath.Join(t.TempDir(), "f"), 0)
	require.NoError(t, err)
	defer f.Close()
	put := func(hash uint64, key string, ts uint64) Change {
		return PutVersion(&Version{TS: ts, Hash: hash, Key: []byte(key), Value: []byte("v")})
	}
	require.NoError(t, f.Apply([]Entry{{Seq: 1, Changes: []Change{
		put(1, "a", 3), put(1, "a", 7), // forgotten
		put(2, "b", 7), PutTransaction(&Transaction{TS: 7, Client: 9, State: Prepared, Hashes: []uint64{2}}),
		put(1, "a", 9), PutTransaction(&Transaction{TS: 9, Client: 9, State: Prepared, Hashes: []uint64{1}}),
	}}}, State{Seq: 1}))
	r, found, err := f.Get(1, []byte("a"))
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 7, r.Version)
	_, found, err = f.Get(2, []byte("b"))
	require.NoError(t, err)
	require.False(t, found)
	in, err := f.Inherit(func(uint64) bool { return true })
	require.NoError(t, err)
	require.Len(t, in.Versions, 2)
	for _, v := range in.Versions {
		require.Equal(t, map[string]uint64{"a": 9, "b": 7}[string(v.Key)], v.TS)
	}
	require.Len(t, in.Newest, 1)
	require.EqualValues(t, 7, in.Newest[0].TS)
}
