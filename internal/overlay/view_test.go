package overlay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
)

// tree is a cursor over sorted records that behaves like that of a tree.
type tree struct {
	keys   []string
	values map[string]string
	at     int // index in keys; -1 and len(keys) are before and after all keys
	moved  bool
}

func treeOf(m map[string]string) *tree {
	t := &tree{values: m}
	for k := range m {
		t.keys = append(t.keys, k)
	}
	slices.Sort(t.keys)
	return t
}

func (t *tree) to(at int) bool {
	t.at, t.moved = min(max(at, -1), len(t.keys)), true
	return t.at >= 0 && t.at < len(t.keys)
}
func (t *tree) First() bool          { return t.to(0) }
func (t *tree) Last() bool           { return t.to(len(t.keys) - 1) }
func (t *tree) Seek(key []byte) bool { return t.to(sort.SearchStrings(t.keys, string(key))) }
func (t *tree) Key() []byte          { return []byte(t.keys[t.at]) }
func (t *tree) Err() error           { return nil }
func (t *tree) Next() bool {
	if !t.moved {
		return t.First()
	}
	return t.to(t.at + 1)
}
func (t *tree) Prev() bool {
	if !t.moved {
		return t.Last()
	}
	return t.to(t.at - 1)
}

func insert(m *Memtable, key, value string, remove bool, seq uint64) {
	op := btree.Op{Key: []byte(key), Value: []byte(value), Delete: remove}
	m.Insert(&op, writeset.HashKey(op.Key), seq)
}

// TestViewModel: random batches go into memtables, which are sealed, merged completely or in part, and reused. Readers
// that began at any time see the state of that time: in lookups, in cursors that move in both directions, and in
// counts.
func TestViewModel(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		restore := marking(seed%2 == 1)
		model(t, rand.New(rand.NewPCG(uint64(seed), 7)))
		restore()
	}
}

// marking gives small indexes marks, or none, until restore is called.
func marking(small bool) (restore func()) {
	was := markedWords
	if markedWords = 1 << 30; small {
		markedWords = leastWords
	}
	return func() { markedWords = was }
}

// TestMarks: a memtable finds its keys while its index grows. For most other keys the marks alone show that the
// memtable does not have them; for an emptied one this holds for all keys.
func TestMarks(t *testing.T) {
	defer marking(true)()
	m := NewMemtable()
	v := &View{Tables: []*Memtable{m}}
	key := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	const n = 3000
	for i := range n {
		insert(m, string(key(i)), "", false, uint64(i+1))
	}
	m.Show()
	marked := func(i int) bool { return m.index.Load().has(uint32(writeset.HashKey(key(i)))) }
	others := 0
	for i := range n {
		require.NotNil(t, v.Find(key(i), n), "%d of %d", i, n)
		if marked(n + i) {
			others++
		}
	}
	require.Less(t, others, n/4)
	m.Reset()
	for i := range n {
		require.False(t, marked(i))
	}
}

type modelReader struct {
	view *View
	seq  uint64
	tree map[string]string
	want map[string]string
}

func model(t *testing.T, rng *rand.Rand) {
	keys := 1 + rng.IntN(200)
	key := func() string {
		k := fmt.Sprintf("key %d", rng.IntN(keys)*7)
		if rng.IntN(10) == 0 {
			k = k[:rng.IntN(len(k))]
		}
		return k
	}
	state, merged := map[string]string{}, map[string]string{} // the current state; the state of the tree
	active := NewMemtable()
	var sealed, spare *Memtable
	var spareFrom uint64 // the spare table may only be reused when no reader from before this Seq is left
	states := map[uint64]map[string]string{0: {}}
	view := &View{Tables: []*Memtable{active}}
	var readers []modelReader
	seq := uint64(0)
	publish := func(base uint64) {
		merged = states[base]
		tables := []*Memtable{active}
		if sealed != nil {
			tables = append(tables, sealed)
		}
		view = &View{Tree: base, Base: base, Records: int64(len(merged)), Tables: tables}
	}
	for range 100 + rng.IntN(200) {
		switch rng.IntN(12) {
		default: // commit
			seq++
			state = clone(state)
			n := 1 + rng.IntN(5)
			if rng.IntN(30) == 0 {
				n = 500
			}
			batch := map[string]bool{}
			for range n {
				k, remove := key(), rng.IntN(3) == 0
				if batch[k] { // each key once per batch
					continue
				}
				batch[k] = true
				if remove {
					delete(state, k)
				} else {
					state[k] = fmt.Sprint(seq)
				}
				insert(active, k, fmt.Sprint(seq), remove, seq)
			}
			active.Show()
			states[seq] = state
		case 0: // merge the active table, perhaps only in part
			if sealed == nil && active.Len() > 0 {
				base := active.Seq(rng.IntN(active.Len()))
				if base >= view.Base {
					publish(base)
				}
			}
		case 1: // seal a table
			if sealed == nil && active.Len() > 0 {
				sealed, active = active, spare
				if active == nil {
					active = NewMemtable()
				}
				spare = nil
				publish(view.Base)
			}
		case 2: // merge it
			if sealed == nil {
				break
			}
			old, base := sealed, sealed.Seq(sealed.Len()-1)
			sealed = nil
			publish(base)
			spareFrom = base
			free := true
			for _, r := range readers {
				free = free && r.view.Tree >= spareFrom
			}
			if free && spare == nil && rng.IntN(2) == 0 {
				old.Reset()
				spare = old
			}
		case 3:
			at := seq
			if rng.IntN(3) == 0 && seq > view.Base { // a View of the durable state
				at = view.Base + rng.Uint64N(seq-view.Base+1)
			}
			readers = append(readers, modelReader{view, at, merged, states[at]})
		case 4:
			if len(readers) > 0 {
				i := rng.IntN(len(readers))
				readers[i].check(t, rng, key)
				readers = slices.Delete(readers, i, i+1)
			}
		}
	}
	for _, r := range readers {
		r.check(t, rng, key)
	}
}

func clone(m map[string]string) map[string]string {
	c := make(map[string]string, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (r *modelReader) check(t *testing.T, rng *rand.Rand, key func() string) {
	for range 50 {
		k := key()
		value, ok := r.tree[k]
		if op := r.view.Find([]byte(k), r.seq); op != nil {
			value, ok = string(op.Value), !op.Delete
		}
		want, there := r.want[k]
		require.Equal(t, there, ok, "%q", k)
		if ok {
			require.Equal(t, want, value, "%q", k)
		}
	}
	n, err := r.view.Len(r.seq, func(key []byte) (bool, error) {
		_, ok := r.tree[string(key)]
		return ok, nil
	})
	require.NoError(t, err)
	require.EqualValues(t, len(r.want), n)

	base := treeOf(r.tree)
	var c Cursor
	c.Over(base, r.view, r.seq)
	all := treeOf(r.want)
	same := func(move string, got, want bool) {
		t.Helper()
		require.Equal(t, want, got, move)
		require.NoError(t, c.Err())
		if !want {
			require.Nil(t, c.Key())
			return
		}
		k := string(all.Key())
		require.Equal(t, k, string(c.Key()), move)
		if op := c.Op(); op != nil {
			require.Equal(t, r.want[k], string(op.Value))
			require.False(t, op.Delete)
		} else {
			require.Equal(t, k, base.keys[base.at])
			require.Equal(t, r.want[k], r.tree[k])
		}
	}
	for range 60 {
		switch rng.IntN(8) {
		case 0:
			same("First", c.First(), all.First())
		case 1:
			same("Last", c.Last(), all.Last())
		case 2:
			k := key()
			same("Seek", c.Seek([]byte(k)), all.Seek([]byte(k)))
		case 3, 4, 5:
			same("Next", c.Next(), all.Next())
			if c.Key() != nil && c.Op() == nil && c.Forward() && rng.IntN(2) == 0 { // move the tree's cursor, as Stretch does with a part of a leaf
				bound := c.Bound()
				for base.at+1 < len(base.keys) && (bound == nil || base.keys[base.at+1] < string(bound)) {
					base.Next()
					all.Next()
				}
				c.TreeMoved()
				same("a stretch", true, true)
			}
		default:
			same("Prev", c.Prev(), all.Prev())
		}
	}
}

// TestTableReadersBesideInserts: while one goroutine inserts, readers find the state at the Seq at which they read,
// and nothing newer.
func TestTableReadersBesideInserts(t *testing.T) {
	const batches, keys = 20_000, 500
	defer marking(true)()
	m := NewMemtable()
	v := &View{Tables: []*Memtable{m}}
	var applied atomic.Uint64
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for applied.Load() < batches {
				seq := applied.Load()
				k := rng.IntN(keys)
				key := fmt.Appendf(nil, "%d", k)
				last := (seq + uint64(keys-k)) / keys // number of writes of the key: batch i writes key i%keys
				op := v.Find(key, seq)
				switch {
				case seq < uint64(k) || k == 0 && seq < keys:
					if op != nil {
						t.Errorf("key %d at %d: %s", k, seq, op.Value)
					}
				case op == nil || !bytes.HasPrefix(op.Value, []byte("batch ")):
					t.Errorf("key %d at %d: none; write %d", k, seq, last)
				default:
					var at uint64
					fmt.Sscanf(string(op.Value), "batch %d", &at)
					if at > seq || at+keys <= seq || at%keys != uint64(k) {
						t.Errorf("key %d at %d: of %d", k, seq, at)
					}
				}
				if rng.IntN(200) == 0 {
					var c Cursor
					c.Over(treeOf(nil), v, seq)
					n := 0
					for c.Next() {
						n++
					}
					if n != int(min(seq, keys)) {
						t.Errorf("%d keys at %d", n, seq)
					}
				}
			}
		})
	}
	for seq := uint64(1); seq <= batches; seq++ {
		insert(m, fmt.Sprint(seq%keys), fmt.Sprint("batch ", seq), false, seq)
		m.Show()
		applied.Store(seq)
	}
	wg.Wait()
}

// TestEntriesUpToBase: entries that are also in the tree are not used, even if a memtable still has them, because the
// tree may have a newer value.
func TestEntriesUpToBase(t *testing.T) {
	m := NewMemtable()
	insert(m, "k", "1", false, 1)
	insert(m, "k", "2", false, 2)
	m.Show()
	tables := []*Memtable{m}
	for base, want := range []string{"2", "2", ""} {
		v := &View{Tree: uint64(base), Base: uint64(base), Tables: tables}
		op := v.Find([]byte("k"), 9)
		require.Equal(t, want == "", op == nil, base)
		require.Equal(t, want == "", v.Covers(9), base)
		if op != nil {
			require.Equal(t, want, string(op.Value))
		}
	}
}

// TestSorted: the result is the last op of each key, in key order.
func TestSorted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for _, n := range []int{0, 1, 10, 64, 65, 100, 5000} {
		m := NewMemtable()
		m.Reserve(n)
		last := map[string]string{}
		for i := range n {
			k := fmt.Sprintf("prefix%d", rng.IntN(n))
			last[k] = fmt.Sprint(i)
			insert(m, k, last[k], false, 1)
			if i == n/2 {
				m.Show()
				m.Sorted() // as if a cursor had asked for it
			}
		}
		m.Show()
		s, all := m.Sorted(), treeOf(last)
		require.Equal(t, len(last), s.Len())
		for i, k := range all.keys {
			require.Equal(t, k, string(s.At(i).Key))
			require.Equal(t, last[k], string(s.At(i).Value))
		}
	}
}

func BenchmarkInsert(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	ops := make([]btree.Op, 1<<17)
	for i := range ops {
		ops[i] = btree.Op{Key: fmt.Appendf(nil, "user%016x", rng.Uint64()), Value: []byte("value")}
	}
	m := NewMemtable()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(ops) == 0 {
			m.Reset()
		}
		op := &ops[i%len(ops)]
		m.Insert(op, writeset.HashKey(op.Key), uint64(i+1))
	}
}

func BenchmarkFind(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	m := NewMemtable()
	var keys [][]byte
	for i := range 1 << 17 {
		op := btree.Op{Key: fmt.Appendf(nil, "user%016x", rng.Uint64()), Value: []byte("value")}
		keys = append(keys, op.Key)
		m.Insert(&op, writeset.HashKey(op.Key), uint64(i+1))
	}
	m.Show()
	v := &View{Tables: []*Memtable{m}}
	for _, miss := range []bool{false, true} {
		b.Run(fmt.Sprintf("miss=%v", miss), func(b *testing.B) {
			var buf []byte
			for i := 0; b.Loop(); i++ {
				k := keys[i*7919%len(keys)]
				if miss {
					buf = append(append(buf[:0], k...), 'x')
					k = buf
				}
				if (v.Find(k, 1<<40) == nil) != miss {
					b.Fatal()
				}
			}
		})
	}
}
