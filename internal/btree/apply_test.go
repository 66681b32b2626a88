package btree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func put(key, value string) Op { return Op{Key: []byte(key), Value: []byte(value)} }
func del(key string) Op        { return Op{Key: []byte(key), Delete: true} }

func numbered(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// mustApply applies a batch and returns how many pages got a new version.
func (t *tree) mustApply(tb testing.TB, ops ...Op) (puts int) {
	before := t.puts
	_, err := t.apply(ops)
	require.NoError(tb, err)
	return t.puts - before
}

func TestOneVersionPerPageAndBatch(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	require.Zero(t, tr.mustApply(t), "an empty batch")
	require.Zero(t, tr.mustApply(t, del("nobody")))
	require.Equal(t, 1, tr.mustApply(t, put("a", "1"), put("b", "2"), put("c", "3")))
	require.Equal(t, 1, tr.mustApply(t, del("a"), put("b", "2"), del("bb"), put("d", "4")))
	require.Equal(t, 1, tr.mustApply(t, put("b", "2")), "the same value again is a version")
	require.Zero(t, tr.mustApply(t, del("a"), del("e")))
	require.Equal(t, 1, tr.mustApply(t, del("a"), Op{Key: []byte("e"), Delete: true, Marks: true}), "a delete that marks")
	require.Equal(t, 1, tr.mustApply(t, del("b"), del("c"), del("d")), "an empty root stays")
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	require.Zero(t, root.Count())
	require.Equal(t, 1, tr.mustApply(t, Op{Key: []byte("a"), Delete: true, Marks: true}), "also in an empty root")
}

func TestResultAdded(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	for _, c := range []struct {
		ops   []Op
		added int64
	}{
		{[]Op{put("a", ""), put("b", "")}, 2}, {[]Op{put("a", "x")}, 0}, {[]Op{del("a"), del("c")}, -1}, {[]Op{del("b"), put("c", "")}, 0},
	} {
		r, err := tr.apply(c.ops)
		require.NoError(t, err)
		require.Equal(t, c.added, r.Added)
	}
}

// TestAscendingLoadFillsPages appends one record at a time, and a thousand at a time.
func TestAscendingLoadFillsPages(t *testing.T) {
	for _, batch := range []int{1, 1000} {
		tr := newTree()
		var ops []Op
		total := 0
		for i := range 40_000 / (2000 / (batch + 999)) {
			ops = append(ops, Op{Key: numbered(i), Value: make([]byte, 8)})
			if len(ops) == batch {
				puts := tr.mustApply(t, ops...)
				ops = ops[:0]
				total += puts
				if i%500 == 0 {
					tr.forget(tr.seq)
				}
			}
		}
		pages, full := map[int]int{}, map[int]int{}
		_, err := CheckTree(tr, rootID, func(id PageID, n Node) error {
			pages[n.Level()]++
			if n.bytes() > BodySize*97/100 {
				full[n.Level()]++
			}
			return nil
		})
		require.NoError(t, err)
		require.Less(t, total, 2*pages[0]+tr.seq, "a leaf each time; when one is full, its successor and the parent")
		require.GreaterOrEqual(t, full[0], pages[0]-1)
		require.GreaterOrEqual(t, full[1], pages[1]-1)
		tr.memory.Close()
	}
}

// TestRandomLoadFill checks that leaves that are split in the middle are two thirds full on average, and that in a
// split the left leaf keeps its name.
func TestRandomLoadFill(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	r := rand.New(rand.NewSource(1))
	m := model{}
	for range 100 {
		tr.mustApply(t, tr.batch(r, m, func(r *rand.Rand) []byte { return numbered(int(r.Uint32())) }, 100, 0)...)
		tr.forget(tr.seq)
	}
	pages, bytes := 0, 0
	_, err := CheckTree(tr, rootID, func(id PageID, n Node) error {
		if n.IsLeaf() {
			pages++
			bytes += n.bytes()
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, bytes, pages*BodySize*60/100)
}

// TestDeletesMerge deletes most of a large tree, one record at a time, and all of it.
func TestDeletesMerge(t *testing.T) {
	for _, order := range []string{"ascending", "descending", "random"} {
		tr := newTree()
		const n = 6_000
		var ops []Op
		for i := range n {
			ops = append(ops, Op{Key: numbered(i), Value: make([]byte, 20)})
		}
		tr.mustApply(t, ops...)
		victims := rand.New(rand.NewSource(1)).Perm(n)
		for i := range victims {
			switch order {
			case "ascending":
				victims[i] = i
			case "descending":
				victims[i] = n - 1 - i
			}
		}
		for i, v := range victims {
			tr.mustApply(t, Op{Key: numbered(v), Delete: true})
			if i%300 == 0 {
				tr.forget(tr.seq)
			}
			if left := n - 1 - i; left == n/10 || left == 100 {
				pages := 0
				records, err := CheckTree(tr, rootID, func(id PageID, n Node) error { pages++; return nil })
				require.NoError(t, err)
				require.EqualValues(t, left, records)
				require.LessOrEqual(t, pages, left*34*4/BodySize+3, "%s: %d records left", order, left)
			}
		}
		tr.forget(tr.seq)
		require.Len(t, tr.pages, 1, "only the root is left")
		tr.write(t)
		require.Zero(t, tr.memory.Held())
		tr.memory.Close()
	}
}

// TestRootKeepsItsName grows and shrinks a tree through several heights.
func TestRootKeepsItsName(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	heights := map[int]bool{}
	key := func(i int) string { // each two neighbors share 480 bytes, and no others do, so half of the separators are that long
		return strings.Repeat(fmt.Sprintf("%04d", i/2), 120) + fmt.Sprint(i%2)
	}
	for i := range 600 {
		tr.mustApply(t, put(key(i*7919%600), "v"))
		root, err := tr.Node(rootID)
		require.NoError(t, err)
		heights[root.Level()] = true
	}
	for i := range 600 {
		tr.mustApply(t, del(key(i)))
	}
	root, err := tr.Node(rootID)
	require.NoError(t, err)
	require.True(t, root.IsLeaf())
	require.True(t, heights[2], "%v", heights)
}

// failing is an Editor whose Node fails after some calls.
type failing struct {
	*tree
	left int
}

var errMedia = errors.New("bad medium")

func (f *failing) Node(id PageID) (Node, error) {
	if f.left--; f.left < 0 {
		return Node{}, errMedia
	}
	return f.tree.Node(id)
}

func (f *failing) RunKey(ref Ref) ([]byte, error) {
	if f.left--; f.left < 0 {
		return nil, errMedia
	}
	return f.tree.RunKey(ref)
}

// TestErrorsOfThePager makes each access to a page or run fail in turn, in batches of all kinds and in reads.
func TestErrorsOfThePager(t *testing.T) {
	inTurn(t)
	for _, space := range keyspaces[:len(keyspaces)-1] {
		for left := 0; ; left += 1 + left/4 {
			r := rand.New(rand.NewSource(1))
			tr, m := newTree(), model{}
			tr.mustApply(t, tr.batch(r, m, space.key, 300, 0)...)
			ops := tr.batch(r, m, space.key, 100, 80)
			f := &failing{tr, left}
			var c Cursor
			c.Reset(f, rootID)
			for c.Next() {
				c.Key()
			}
			if f.left < 0 {
				require.ErrorIs(t, c.Err(), errMedia)
				require.False(t, c.Next() || c.Prev() || c.First() || c.Last() || c.Seek(nil), "a failed cursor stays where it is")
			}
			f.left = left
			_, _, err := Get(f, rootID, ops[0].Key)
			require.True(t, f.left >= 0 || errors.Is(err, errMedia))
			f.left = left
			_, err = Apply(f, rootID, ops)
			done := f.left >= 0
			require.True(t, done || errors.Is(err, errMedia))
			tr.memory.Close()
			if done && c.Err() == nil {
				break
			}
		}
	}
}

// TestOpsInDisorder: keys that are not in order may come from a file, so they are reported as an error, and nothing
// is changed.
func TestOpsInDisorder(t *testing.T) {
	for _, ops := range [][]Op{{put("b", ""), put("a", "")}, {put("a", ""), del("a")}} {
		tr := newTree()
		_, err := Apply(tr, rootID, ops)
		require.ErrorIs(t, err, ErrMalformed)
		require.Zero(t, tr.puts)
		tr.memory.Close()
	}
}

func TestBadOpsPanic(t *testing.T) {
	long := []byte(strings.Repeat("k", MaxInlineKey+1))
	for name, op := range map[string]Op{
		"value too long":        {Key: []byte("k"), Value: make([]byte, MaxInline)},
		"long key inline":       {Key: long},
		"long key of no length": {Key: long, Ref: &Ref{ID: 1, Kind: Run}},
		"short key of a length": {Key: []byte("k"), Ref: &Ref{ID: 1, Kind: Run, KeyLen: 1}},
		"no kind":               {Key: []byte("k"), Ref: &Ref{ID: 1}},
		"huge value":            {Key: []byte("k"), Ref: &Ref{ID: 1, Kind: Run, ValueLen: MaxValue + 1}},
	} {
		tr := newTree()
		require.Panics(t, func() { _, _ = tr.apply([]Op{op}) }, name)
		tr.memory.Close()
	}
}

// TestReadersDuringApply lets readers walk published snapshots while the writer continues. Memory is on the Go
// heap, so that the race detector sees all accesses.
func TestReadersDuringApply(t *testing.T) {
	tr := newTree()
	tr.memory.onHeap, tr.memory.poison = true, false
	type published struct {
		images
		records int64
	}
	var current atomic.Pointer[published]
	publish := func(records int64) {
		p := &published{images{}, records}
		for id, vs := range tr.pages {
			if v := vs[len(vs)-1]; !v.gone {
				p.images[id] = v.node
			}
		}
		current.Store(p)
	}
	publish(0)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var c Cursor
			for !stop.Load() {
				p := current.Load()
				c.Reset(p, rootID)
				records := int64(0)
				for c.Next() {
					if !strings.HasPrefix(string(c.Value()), string(c.Key())) {
						t.Errorf("record %q has the value %q", c.Key(), c.Value())
						return
					}
					records++
				}
				if c.Err() != nil || records != p.records {
					t.Errorf("%d records instead of %d, err %v", records, p.records, c.Err())
					return
				}
			}
		})
	}
	r := rand.New(rand.NewSource(1))
	records := int64(0)
	for range 100 {
		m := map[int]bool{}
		for range 1 + r.Intn(40) {
			m[r.Intn(2000)] = true
		}
		var ops []Op
		for i := range 2000 {
			if key := fmt.Sprintf("%05d", i); m[i] {
				ops = append(ops, Op{Key: []byte(key), Value: []byte(key + strings.Repeat("+", r.Intn(100))), Delete: r.Intn(3) == 0})
			}
		}
		res, err := tr.apply(ops)
		require.NoError(t, err)
		records += res.Added
		publish(records)
	}
	stop.Store(true)
	wg.Wait()
}

// images is a Pager that has only pages.
type images map[PageID]Node

func (p images) Node(id PageID) (Node, error) { return p[id], nil }
func (images) RunKey(Ref) ([]byte, error)     { return nil, errNoPage }

// TestWholeLeafReplaced replaces all records of a leaf in one batch by others with a common prefix of the same
// length: the new version must not keep the bytes of the old prefix.
func TestWholeLeafReplaced(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	tr.mustApply(t, put("aa1", ""), put("aa2", ""))
	tr.mustApply(t, del("aa1"), del("aa2"), put("bb1", ""), put("bb2", ""))
	tr.mustApply(t, put("ba", ""))
	var keys []string
	var c Cursor
	c.Reset(tr, rootID)
	for ok := c.First(); ok; ok = c.Next() {
		keys = append(keys, string(c.Key()))
	}
	require.NoError(t, c.Err())
	require.Equal(t, []string{"ba", "bb1", "bb2"}, keys)
}
