package btree

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// cut cuts a range from the tree, at the next seq, and from the model, and returns how many pages were put.
func (t *tree) cut(tb testing.TB, m model, from, to []byte) (puts int) {
	t.seq++
	before, old := t.puts, len(m)
	for k := range m {
		if k >= string(from) && (to == nil || k < string(to)) {
			delete(m, k)
		}
	}
	r, err := Cut(t, rootID, from, to)
	require.NoError(tb, err)
	require.EqualValues(tb, len(m)-old, r.Added)
	return t.puts - before
}

// TestCutModel cuts ranges between random batches and compares the tree with a map: every record in both
// directions, every reference, and older snapshots.
func TestCutModel(t *testing.T) {
	inTurn(t)
	for _, space := range append(keyspaces, all) {
		t.Run(space.name, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(2) {
				cutRun(t, space, seed)
			}
		})
	}
}

func cutRun(t *testing.T, space keyspace, seed int64) {
	r := rand.New(rand.NewSource(100 + seed))
	tr := newTree()
	if seed == 1 {
		tr.length = 8
	}
	m := model{}
	rounds := 10
	if testing.Short() || space.name == "huge" {
		rounds = 4
	}
	for range rounds {
		size := 2000
		if space.name == "huge" {
			size = 30
		}
		_, err := tr.apply(tr.batch(r, m, space.key, size, 5))
		require.NoError(t, err)
		before, seq := clone(m), tr.seq
		for range 1 + r.Intn(3) {
			from, to := space.key(r), space.key(r)
			if keys := m.sorted(); len(keys) > 0 && r.Intn(3) == 0 { // between neighbours, or about one leaf
				i := r.Intn(len(keys))
				from, to = near(r, []byte(keys[i])), near(r, []byte(keys[min(i+r.Intn(100), len(keys)-1)]))
			}
			switch r.Intn(8) {
			case 0:
				from = nil
			case 1:
				to = nil
			}
			tr.cut(t, m, from, to)
			check(t, snapshot{tr, tr.seq}, m, r, space.key)
			require.Len(t, tr.live, countRefs(m))
		}
		check(t, snapshot{tr, seq}, before, r, space.key)
		if r.Intn(3) == 0 {
			tr.forget(tr.seq)
			tr.write(t)
		}
	}
	tr.cut(t, m, nil, nil)
	require.Empty(t, m)
	tr.forget(tr.seq)
	tr.write(t)
	require.Len(t, tr.pages, 1, "pages are left in an empty tree")
	require.Zero(t, tr.memory.Held())
	tr.memory.Close()
}

// TestCutPuts: Cut puts only a few pages, on the paths to the two ends, however much is between them.
func TestCutPuts(t *testing.T) {
	tr := newTree()
	m := model{}
	const n = 100_000
	key := func(i int) []byte { return fmt.Appendf(nil, "%010d", i) }
	value := bytes.Repeat([]byte{'v'}, 100)
	for i := 0; i < n; i += 1000 {
		var ops []Op
		for j := i; j < i+1000; j++ {
			ops = append(ops, Op{Key: key(j), Value: value})
			m[string(key(j))] = record{value: value}
		}
		_, err := tr.apply(ops)
		require.NoError(t, err)
	}
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	height := root.Level() + 1
	require.GreaterOrEqual(t, height, 3)
	require.LessOrEqual(t, tr.cut(t, m, key(n/100), key(n-n/100)), 2*2*height)
	require.LessOrEqual(t, tr.cut(t, m, key(n/200), key(n/150)), 2*2*height)
	r := rand.New(rand.NewSource(1))
	check(t, snapshot{tr, tr.seq}, m, r, func(r *rand.Rand) []byte { return key(r.Intn(n)) })
	tr.memory.Close()
}
