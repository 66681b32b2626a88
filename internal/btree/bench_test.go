package btree

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// flatTree is an Editor that has only the newest version of each page. It is as fast as an Editor can be, so that
// benchmarks measure this package.
type flatTree struct {
	memory *Memory
	pages  []Node
	old    []Node // replaced by this batch and the one before
	now    int    // where those of this batch begin in old
}

func newFlatTree() *flatTree {
	t := &flatTree{memory: NewMemory(), pages: make([]Node, rootID+1)}
	t.memory.Even = true
	t.pages[rootID] = EmptyLeaf(t.memory)
	return t
}

func (t *flatTree) Node(id PageID) (Node, error)   { return t.pages[id], nil }
func (t *flatTree) RunKey(ref Ref) ([]byte, error) { panic("no long keys here") }
func (t *flatTree) Memory() *Memory                { return t.memory }
func (t *flatTree) New() PageID                    { t.pages = append(t.pages, Node{}); return PageID(len(t.pages) - 1) }
func (t *flatTree) Drop(ref Ref)                   {}
func (t *flatTree) Remove(id PageID)               { t.Put(id, Node{}) }
func (t *flatTree) Update(id PageID, n Node)       { t.Put(id, n) }
func (t *flatTree) Grow(_, id PageID, n Node)      { t.Put(id, n) }
func (t *flatTree) Narrow(PageID)                  {}
func (t *flatTree) Ahead([]PageID)                 {}
func (t *flatTree) Put(id PageID, n Node) {
	t.old = append(t.old, t.pages[id])
	t.pages[id] = n
}

func (t *flatTree) apply(tb testing.TB, ops []Op) {
	if _, err := Apply(t, rootID, ops); err != nil {
		tb.Fatal(err)
	}
	for _, n := range t.old[:t.now] {
		n.Release(t.memory)
	}
	t.now = copy(t.old, t.old[t.now:])
	t.old = t.old[:t.now]
}

// write turns all pages into images in one piece of memory, in an order unrelated to the order of the keys.
func (t *flatTree) write() {
	images := make([]byte, len(t.pages)*PageSize)
	for id, at := range rand.New(rand.NewSource(1)).Perm(len(t.pages)) {
		if n := t.pages[id]; n.dir != nil {
			image := images[at*PageSize:][:PageSize]
			n.Encode(image[MuxSize:], true)
			n.Release(t.memory)
			t.pages[id] = View(image)
		}
	}
	for _, n := range t.old {
		n.Release(t.memory)
	}
	t.old, t.now = nil, 0
}

// stats returns the height and the number of pages per level.
func (t *flatTree) stats() (height int, pages [4]int) {
	for _, n := range t.pages {
		if n.dir != nil {
			pages[n.Level()]++
			height = max(height, n.Level()+1)
		}
	}
	return height, pages
}

func randomKeys(n int) []byte {
	keys := make([]byte, 16*n)
	rand.New(rand.NewSource(1)).Read(keys)
	return keys
}

// threadTime locks the calling goroutine to its thread and returns the processor time of the thread. It is nil
// where there is no such clock.
var threadTime func() time.Duration

// cpu measures the processor time of f, if it can, and adds it to the sum, which report divides by the number of
// operations.
type cpu struct{ sum time.Duration }

func (c *cpu) measure(f func()) {
	if threadTime == nil {
		f()
		return
	}
	start := threadTime()
	f()
	c.sum += threadTime() - start
}

func (c *cpu) report(b *testing.B) {
	if c.sum > 0 {
		b.ReportMetric(float64(c.sum.Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
}

const benchRecords = 1_000_000

// loadRandom inserts n random records of 16+100 bytes in batches.
func loadRandom(tb testing.TB, n, batch int) (*flatTree, []byte) {
	t, keys, value := newFlatTree(), randomKeys(n), make([]byte, 100)
	ops := make([]Op, 0, batch)
	for i := 0; i < n; i += batch {
		ops = ops[:0]
		for j := i; j < i+batch; j++ {
			ops = append(ops, Op{Key: keys[16*j : 16*j+16], Value: value})
		}
		slices.SortFunc(ops, func(a, b Op) int { return bytes.Compare(a.Key, b.Key) })
		t.apply(tb, ops)
	}
	return t, keys
}

// loaded returns a tree of benchRecords, as images or as versions in memory, for benchmarks that only read.
func loaded(tb testing.TB, written bool) (*flatTree, []byte) {
	i := 0
	if written {
		i = 1
	}
	if readOnly[i] == nil {
		t, _ := loadRandom(tb, benchRecords, 1000)
		if written {
			t.write()
		}
		readOnly[i] = t
	}
	return readOnly[i], randomKeys(benchRecords)
}

var readOnly [2]*flatTree

func BenchmarkGet(b *testing.B) {
	for _, written := range []bool{true, false} {
		name := "memory"
		if written {
			name = "images"
		}
		b.Run(name, func(b *testing.B) {
			t, keys := loaded(b, written)
			h, p := t.stats()
			if b.N == 1 {
				b.Logf("height %d, pages %v, held %d MB", h, p, t.memory.Held()>>20)
			}
			r := rand.New(rand.NewSource(2))
			probes := make([]int, 1<<20)
			for i := range probes {
				probes[i] = r.Intn(benchRecords)
			}
			var out [100]byte
			var used cpu
			b.ResetTimer()
			used.measure(func() {
				for i := range b.N {
					j := probes[i&(1<<20-1)]
					c, found, err := Get(t, rootID, keys[16*j:16*j+16])
					if !found || err != nil {
						b.Fatal(found, err)
					}
					copy(out[:], c.Value())
				}
			})
			used.report(b)
		})
	}
}

func BenchmarkScan(b *testing.B) {
	t, _ := loaded(b, true)
	var c Cursor
	sum := 0
	var used cpu
	b.ResetTimer()
	c.Reset(t, rootID)
	used.measure(func() {
		for range b.N {
			if !c.Next() {
				require.NoError(b, c.Err())
				c.First()
			}
			sum += len(c.Key()) + len(c.Value())
		}
	})
	used.report(b)
}

// BenchmarkApplyRandom inserts 1,000 sorted random records at a time into a tree that grows to a million. One
// operation is one record.
func BenchmarkApplyRandom(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(map[int]string{1: "1", 100: "100", 1000: "1000"}[batch], func(b *testing.B) {
			value := make([]byte, 100)
			keys := randomKeys(benchRecords)
			t := newFlatTree()
			ops := make([]Op, 0, batch)
			at := 0
			var used cpu
			b.ResetTimer()
			for done := 0; done < b.N; done += batch {
				b.StopTimer()
				if at+batch > benchRecords {
					t.memory.Close()
					t, at = newFlatTree(), 0
				}
				ops = ops[:0]
				for j := at; j < at+batch; j++ {
					ops = append(ops, Op{Key: keys[16*j : 16*j+16], Value: value})
				}
				at += batch
				slices.SortFunc(ops, func(a, b Op) int { return bytes.Compare(a.Key, b.Key) })
				b.StartTimer()
				used.measure(func() { t.apply(b, ops) })
			}
			used.report(b)
		})
	}
}

// BenchmarkUpdate replaces 1,000 random values at a time in a tree of a million records; an operation is a record.
func BenchmarkUpdate(b *testing.B) {
	const batch = 1000
	for _, cold := range []bool{false, true} {
		name := "warm"
		if cold {
			name = "cold"
		}
		b.Run(name, func(b *testing.B) {
			t, keys := loadRandom(b, benchRecords, 1000)
			r := rand.New(rand.NewSource(3))
			value := make([]byte, 100)
			ops := make([]Op, 0, batch)
			if cold {
				t.write()
			}
			var used cpu
			b.ResetTimer()
			for done := 0; done < b.N; done += batch {
				b.StopTimer()
				ops = ops[:0]
				for range batch {
					j := r.Intn(benchRecords)
					ops = append(ops, Op{Key: keys[16*j : 16*j+16], Value: value})
				}
				slices.SortFunc(ops, func(a, b Op) int { return bytes.Compare(a.Key, b.Key) })
				ops = slices.CompactFunc(ops, func(a, b Op) bool { return bytes.Equal(a.Key, b.Key) })
				b.StartTimer()
				used.measure(func() { t.apply(b, ops) })
			}
			b.StopTimer()
			used.report(b)
			b.ReportMetric(float64(t.memory.Held()>>20), "MB")
		})
	}
}

// BenchmarkApplyAscending appends one record of 4+8 bytes at a time.
func BenchmarkApplyAscending(b *testing.B) {
	t := newFlatTree()
	var key [4]byte
	var value [8]byte
	ops := []Op{{Key: key[:], Value: value[:]}}
	var used cpu
	used.measure(func() {
		for i := range b.N {
			binary.BigEndian.PutUint32(key[:], uint32(i))
			t.apply(b, ops)
		}
	})
	b.StopTimer()
	used.report(b)
	_, pages := t.stats()
	b.ReportMetric(float64(b.N)/float64(pages[0]), "records/page")
	b.ReportMetric(float64(t.memory.Held())/float64(pages[0]), "B/page")
}
