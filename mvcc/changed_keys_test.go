package mvcc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
	"flashdbm/logstore/vfs"
)

// nodesOf returns commits of one key each.
func nodesOf(keys ...string) (nodes []*commitNode) {
	for _, key := range keys {
		n := &commitNode{}
		n.Value.set = new(writeset.Set)
		n.Value.set.Put([]byte(key), nil)
		nodes = append(nodes, n)
	}
	return nodes
}

// TestChangedKeys notes batches of keys, marks and lost keys at random. For a group, since returns the keys written
// after the newest mark that is not later than the group, or reports that it does not know them.
func TestChangedKeys(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		k := changedKeys{most: 4 * keyChunk}
		type mark struct {
			group uint64
			at    int // number of keys written before the mark
		}
		var all []string
		var marks []mark
		group, known := uint64(1), 0
		for range 2000 {
			switch n := r.IntN(300); {
			case n == 0:
				k.forget()
				marks = nil
			case n < 60:
				if k.mark(group); len(marks) == 0 || marks[len(marks)-1].at < len(all) {
					marks = append(marks, mark{group, len(all)})
				}
			default:
				group++
				var keys []string
				for range r.IntN(4) {
					keys = append(keys, fmt.Sprintf("%04d%0*d", r.IntN(5000), r.IntN(300), 0))
				}
				if seed%2 == 0 && r.IntN(500) == 0 {
					keys = append(keys, string(make([]byte, 2*keyChunk)))
				}
				k.note(nodesOf(keys...))
				all = append(all, keys...)
			}
			require.LessOrEqual(t, k.bytes, k.most)
			if r.IntN(10) > 0 {
				continue
			}
			since := group - min(group, uint64(r.IntN(200)))
			i := len(marks)
			for i > 0 && marks[i-1].group > since {
				i--
			}
			keys, ok := k.since(since)
			if !ok {
				require.Empty(t, keys)
				if i > 0 { // dropped, to make room for later keys
					length := 0
					for _, key := range all[marks[i-1].at:] {
						length += len(key) + 5
					}
					require.Greater(t, int64(length), k.most/2-2*keyChunk/4)
				}
				continue
			}
			known++
			want := slices.Compact(slices.Sorted(slices.Values(all[marks[i-1].at:])))
			require.Len(t, keys, len(want))
			for i, key := range keys {
				require.Equal(t, want[i], string(key))
			}
		}
		require.Greater(t, known, 20)
	}
}

// TestManyMarks: if there are too many marks, half of them are dropped. An increment since a dropped mark contains
// some keys more.
func TestManyMarks(t *testing.T) {
	k := changedKeys{most: 1 << 30}
	const n = 3 * mostMarks
	for i := range n {
		k.mark(uint64(i))
		k.note(nodesOf(fmt.Sprintf("%08d", i)))
		require.LessOrEqual(t, len(k.marks), mostMarks)
	}
	for i := 0; i < n; i += 97 {
		keys, ok := k.since(uint64(i))
		require.True(t, ok)
		require.Equal(t, fmt.Sprintf("%08d", n-1), string(keys[len(keys)-1]))
		require.GreaterOrEqual(t, len(keys), n-i)
		require.LessOrEqual(t, len(keys), n-i+64)
	}
}

// TestKeysSinceATokenBefore: since returns all keys written after a token, also if a later token was made meanwhile.
// Commits between the two tokens were only in memory when the later one was made.
func TestKeysSinceATokenBefore(t *testing.T) {
	for _, d := range []Durability{Durable, Buffered} {
		mem := vfs.NewMem(0)
		defer mem.Release()
		opts := Options{Durability: d, MemoryLimit: 64 << 20, Manual: true}
		opts.Store.ChunkPages = 1 << 12
		e := openOn(t, mem, opts)
		moment := func(of func(*Engine) (*Tx, uint64, error)) uint64 {
			tx, group, err := of(e)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
			return group
		}
		first := moment(ReadNow)
		tokens := []uint64{first}
		for i := range 6 {
			require.NoError(t, e.WriteOne(fmt.Append(nil, i), nil, false))
			tokens = append(tokens, moment([]func(*Engine) (*Tx, uint64, error){ReadNow, (*Engine).ReadAt}[i%2]))
		}
		for i, token := range tokens {
			keys, ok := e.committer.changed.since(token)
			require.True(t, ok)
			require.Len(t, keys, 6-i)
		}
		require.NoError(t, e.Close())
	}
}

// TestKeysBehindAKill: a reader beside the writer makes a token of the last group of the log. After a kill, that group
// may have grown after the token, so there is no mark for it.
func TestKeysBehindAKill(t *testing.T) {
	mem := vfs.NewMem(0)
	opts := Options{Durability: WriteThrough, MemoryLimit: 64 << 20, Manual: true}
	opts.Store.ChunkPages = 1 << 12
	e := openOn(t, mem, opts)
	require.NoError(t, e.WriteOne([]byte("a"), nil, false))
	token := e.store.LastGroup() // as a reader beside the engine sees it
	require.NoError(t, e.WriteOne([]byte("b"), nil, false))
	require.Equal(t, token, e.store.LastGroup(), "another group")
	tx, _, err := ReadNow(e)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, ok := e.committer.changed.since(token)
	require.False(t, ok)
	image := mem.Crash(vfs.KeepAll, 1)
	defer image.Release()
	opts.Durability = Durable
	e = openOn(t, image, opts)
	tx, now, err := ReadNow(e)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Equal(t, token, now)
	_, ok = e.committer.changed.since(token)
	require.False(t, ok)
	require.NoError(t, e.WriteOne([]byte("c"), nil, false))
	tx, now, err = ReadNow(e)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.NoError(t, e.WriteOne([]byte("d"), nil, false))
	keys, ok := e.committer.changed.since(now)
	require.True(t, ok)
	require.Equal(t, [][]byte{[]byte("d")}, keys)
	require.NoError(t, e.Close())
}
