package writeset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// keyShapes are distributions of keys that test the order in different ways.
var keyShapes = map[string]func(rng *rand.Rand) []byte{
	"random": func(rng *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) },
	"dense":  func(rng *rand.Rand) []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64N(3000)) },
	"decimal": func(rng *rand.Rand) []byte {
		return fmt.Appendf(nil, "user%012d", rng.IntN(100_000))
	},
	"namespaces": func(rng *rand.Rand) []byte {
		return fmt.Appendf(nil, "%c/index/of/something/%06d", 'a'+rng.IntN(3), rng.IntN(10_000))
	},
	"tiny": func(rng *rand.Rand) []byte { return randomOf(rng, "\x00\x01a\xff", rng.IntN(4)) },
	"zeros": func(rng *rand.Rand) []byte {
		return append(bytes.Repeat([]byte{0}, rng.IntN(20)), randomOf(rng, "\x00\x01", rng.IntN(8))...)
	},
	"long prefix": func(rng *rand.Rand) []byte {
		return append(bytes.Repeat([]byte("p"), 300), randomOf(rng, "ab", rng.IntN(12))...)
	},
}

func randomOf(rng *rand.Rand, letters string, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return b
}

// checkSet verifies the invariants of the order.
func checkSet(t *testing.T, w *Set) {
	t.Helper()
	o := &w.order
	require.Len(t, o.firsts, len(o.blocks))
	require.Len(t, o.fences, len(o.blocks))
	slots := 0
	for b, bl := range slices.Concat(o.blocks, o.spare) {
		require.Len(t, bl.records, len(bl.heads))
		require.LessOrEqual(t, len(bl.heads), blockRecords)
		require.True(t, b == 0 || len(bl.heads) == blockRecords, "only the first block may be smaller")
		slots += len(bl.heads)
	}
	require.Equal(t, slots, o.slots)
	seen := make([]bool, w.Len())
	var last []byte
	for b, bl := range o.blocks {
		require.NotZero(t, bl.n)
		require.Equal(t, HeadOf(o.fences[b], 0), o.firsts[b])
		for i, id := range bl.records[:bl.n] {
			require.False(t, seen[id])
			seen[id] = true
			key := w.keyOf(id)
			require.Equal(t, HeadOf(key, bl.skip), bl.heads[i])
			require.NotZero(t, w.filter&(1<<(HashKey(key)%64)))
			require.True(t, b+i == 0 || bytes.Compare(last, key) < 0)
			last = key
		}
		if b > 0 {
			first := w.keyOf(bl.records[0])
			require.Equal(t, first, o.fences[b])
			require.Same(t, &first[0], &o.fences[b][0], "a fence holds no memory of its own")
		}
		if b > 0 && b+1 < len(o.blocks) {
			require.Equal(t, CommonPrefix(o.fences[b], o.fences[b+1]), bl.skip)
		} else {
			require.Zero(t, bl.skip)
		}
	}
	require.NotContains(t, seen, false)

	var held int64
	for _, chunk := range w.arena.chunks {
		held += int64(cap(chunk))
	}
	require.Equal(t, held, w.arena.held)
}

// setModel is the expected content of a Set; nil is a delete.
type setModel map[string]*string

func (m setModel) redoBytes() int64 {
	n := 0
	for k, v := range m {
		n += len(k) + redoRecordBytes
		if v != nil {
			n += len(*v)
		}
	}
	return int64(n)
}

func requireEntry(t *testing.T, m setModel, e Entry) {
	t.Helper()
	v, ok := m[string(e.Key)]
	require.True(t, ok)
	require.Nil(t, e.Ref)
	require.Equal(t, v == nil, e.Deleted)
	if v != nil {
		require.NotNil(t, e.Value)
		require.Equal(t, *v, string(e.Value))
	}
}

// compare compares all results of w with m.
func (m setModel) compare(t *testing.T, w *Set) {
	t.Helper()
	require.Equal(t, len(m), w.Len())
	require.Equal(t, m.redoBytes(), w.RedoBytes())
	keys := slices.Sorted(maps.Keys(m))
	i := 0
	for e := range w.All() {
		require.Equal(t, keys[i], string(e.Key))
		requireEntry(t, m, e)
		got, ok := w.Get([]byte(keys[i]))
		require.True(t, ok)
		requireEntry(t, m, got)
		i++
	}
	require.Equal(t, len(keys), i)

	i = 0
	for p := w.first(); p.ok(); p = w.next(p) {
		require.Equal(t, keys[i], string(w.entryAt(p).Key))
		i++
	}
	require.Equal(t, len(keys), i)
	for p := w.last(); p.ok(); p = w.prev(p) {
		i--
		require.Equal(t, keys[i], string(w.entryAt(p).Key))
	}
	require.Zero(t, i)

	hashes := map[uint64]bool{}
	for h := range w.Hashes {
		hashes[h] = true
	}
	for _, k := range keys {
		require.True(t, hashes[HashKey([]byte(k))])
	}
}

// probe checks seeks that begin at key, which may be absent.
func (m setModel) probe(t *testing.T, w *Set, keys []string, key []byte) {
	t.Helper()
	i, found := slices.BinarySearch(keys, string(key))
	want := func(i int, p position) {
		t.Helper()
		if i < 0 || i >= len(keys) {
			require.False(t, p.ok())
			return
		}
		require.True(t, p.ok())
		require.Equal(t, keys[i], string(w.entryAt(p).Key))
	}
	want(i, w.seek(key))
	want(i-1, w.seekBefore(key))
	_, got := w.Get(key)
	require.Equal(t, found, got)
	if found {
		i++
	}
	want(i, w.seekAfter(key))
}

func TestSetModel(t *testing.T) {
	steps := 4_000
	if testing.Short() {
		steps = 1_500
	}
	for name, shape := range keyShapes {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			var w Set
			for life := range 3 {
				model := setModel{}
				for step := range steps {
					key := shape(rng)
					version := w.Version()
					if rng.IntN(5) == 0 {
						w.Delete(key)
						model[string(key)] = nil
					} else {
						v := fmt.Sprint(life, step)
						w.Put(key, []byte(v))
						model[string(key)] = &v
					}
					require.Greater(t, w.Version(), version)
					clear(key) // the set has copied it
				}
				checkSet(t, &w)
				model.compare(t, &w)
				keys := slices.Sorted(maps.Keys(model))
				for range 500 {
					model.probe(t, &w, keys, shape(rng))
				}
				version := w.Version()
				w.Reset()
				require.Greater(t, w.Version(), version)
				setModel{}.compare(t, &w)
				require.Zero(t, w.filter)
			}
		})
	}
}

func TestSetInOrderOfKeys(t *testing.T) {
	const n = 5*blockRecords + 7
	for name, at := range map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return n - i },
		"outward":    func(i int) int { return n + i*(1-i%2*2) },
	} {
		t.Run(name, func(t *testing.T) {
			var w Set
			model := setModel{}
			for i := range n {
				key, v := fmt.Sprintf("user%08d", at(i)), fmt.Sprint(i)
				w.Put([]byte(key), []byte(v))
				model[key] = &v
			}
			checkSet(t, &w)
			model.compare(t, &w)
			if name == "ascending" {
				require.Len(t, w.order.blocks, (n+blockRecords-1)/blockRecords, "blocks are full")
			}
		})
	}
}

func TestSetEmptyKeysAndValues(t *testing.T) {
	var w Set
	_, ok := w.Get(nil)
	require.False(t, ok)
	require.False(t, w.first().ok())
	require.False(t, w.last().ok())
	require.False(t, w.seek(nil).ok())
	require.False(t, w.seekAfter(nil).ok())
	require.False(t, w.seekBefore(nil).ok())

	w.Put(nil, nil)
	w.Put([]byte{}, []byte{})
	require.Equal(t, 1, w.Len())
	e, ok := w.Get([]byte{})
	require.True(t, ok)
	require.Equal(t, Entry{Key: []byte{}, Value: []byte{}}, e)
	w.Delete(nil)
	e, _ = w.Get(nil)
	require.Equal(t, Entry{Key: []byte{}, Deleted: true}, e)
}

func TestSetRefs(t *testing.T) {
	var w Set
	extents := []logstore.Extent{{Addr: 7, Bytes: 5}}
	w.PutRef([]byte("k"), ValueRef{Len: 5, Extents: extents})
	extents[0].Addr = 9
	e, ok := w.Get([]byte("k"))
	require.True(t, ok)
	require.EqualValues(t, 7, e.Ref.Extents[0].Addr, "copied")
	require.Nil(t, e.Value)
	require.EqualValues(t, 1+redoRecordBytes+redoRefBytes+redoExtentBytes, w.RedoBytes())

	w.Put([]byte("k"), []byte("v"))
	require.EqualValues(t, 1+redoRecordBytes+1, w.RedoBytes())
	w.PutRef([]byte("k"), ValueRef{Len: 6})
	again, _ := w.Get([]byte("k"))
	require.EqualValues(t, 6, again.Ref.Len)
	require.EqualValues(t, 5, e.Ref.Len, "what was handed out stays")
	w.Delete([]byte("k"))
	require.EqualValues(t, 1+redoRecordBytes, w.RedoBytes())
	e, _ = w.Get([]byte("k"))
	require.Nil(t, e.Ref)
}

// TestSetBlocksHoldMany inserts into a full block that is followed by another.
func TestSetBlocksHoldMany(t *testing.T) {
	const n = 8 * blockRecords
	for name, between := range map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return n - i },
		"random":     func(i int) int { return i * 7919 % n },
	} {
		var w Set
		for i := range 2 * blockRecords {
			w.Put(fmt.Appendf(nil, "%d", 1000+i), nil)
		}
		for i := range n {
			w.Put(fmt.Appendf(nil, "%d/%06d", 1000+blockRecords-1, between(i)), nil)
		}
		checkSet(t, &w)
		require.Less(t, len(w.order.blocks), 25, name)
	}
}

// TestSetSlicesStay overwrites the same keys many times with values of many sizes, and then checks all slices that
// the set ever returned.
func TestSetSlicesStay(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var w Set
	type held struct{ got, want []byte }
	var all []held
	hold := func(b []byte) { all = append(all, held{b, bytes.Clone(b)}) }
	squeezed := false
	for i := range 3 * blockRecords {
		w.Put(fmt.Appendf(nil, "key %03d/%d", i%40, i), nil)
	}
	for step := range 600 {
		key := fmt.Appendf(nil, "key %03d", rng.IntN(40))
		value := bytes.Repeat([]byte{byte(step)}, rng.IntN(1<<rng.IntN(18)))
		before := w.arena.held
		w.Put(key, value)
		squeezed = squeezed || w.arena.held < before
		e, ok := w.Get(key)
		require.True(t, ok)
		require.Equal(t, value, e.Value)
		require.Equal(t, len(e.Value), cap(e.Value))
		hold(e.Key)
		hold(e.Value)
	}
	require.True(t, squeezed)
	checkSet(t, &w)
	for _, h := range all {
		require.True(t, bytes.Equal(h.want, h.got))
	}
}

func TestSetOverwritingHoldsLittle(t *testing.T) {
	var w Set
	value := make([]byte, 64<<10)
	for range 1000 {
		w.Put([]byte("one key"), value)
	}
	require.Less(t, w.Bytes(), int64(4<<20))

	// The value may be a slice of the set itself, even one that is squeezed.
	value[0] = 1
	w.Put([]byte("one key"), value)
	for range 100 {
		e, _ := w.Get([]byte("one key"))
		w.Put([]byte("one key"), e.Value)
	}
	e, _ := w.Get([]byte("one key"))
	require.Equal(t, value, e.Value)
}

func TestSetBytes(t *testing.T) {
	var w Set
	require.Zero(t, w.Bytes())
	const n = 20_000
	for i := range n {
		w.Put(fmt.Appendf(nil, "%016d", i), make([]byte, 100))
	}
	payload := int64(n * 116)
	require.Greater(t, w.Bytes(), payload)
	require.Less(t, w.Bytes(), 2*payload)
	w.Reset()
	require.Zero(t, w.Bytes(), "a large set's memory is dropped")

	for i := range 1000 {
		w.Put(fmt.Appendf(nil, "%016d", i), make([]byte, 100))
	}
	modest := w.Bytes()
	w.Reset()
	require.Equal(t, modest, w.Bytes(), "a modest set's is kept")
	require.LessOrEqual(t, modest, int64(512<<10))
}

func TestSetDoesNotAllocate(t *testing.T) {
	for _, n := range []int{1, 500} {
		keys := make([][]byte, n)
		for i, j := range rand.Perm(n) {
			keys[i] = fmt.Appendf(nil, "user%012d", j)
		}
		value := make([]byte, 100)
		var w, other Set
		other.Put(keys[0], nil)
		sum := 0
		require.Zero(t, testing.AllocsPerRun(10, func() {
			w.Reset()
			for _, k := range keys {
				w.Put(k, value)
			}
			for e := range w.All() {
				sum += len(e.Value)
			}
			for h := range w.Hashes {
				sum += int(h)
			}
			w.Intersects(&other)
			w.Overlaps(nil, keys[0])
		}), "%d records", n)
	}
}

// TestSetSharedWhenComplete reads complete sets from several goroutines at once.
func TestSetSharedWhenComplete(t *testing.T) {
	var a, b Set
	for i := range 2000 {
		a.Put(fmt.Appendf(nil, "user%06d", 2*i), nil)
		b.Put(fmt.Appendf(nil, "user%06d", 2*i+1), nil)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			n := 0
			for e := range a.All() {
				if _, ok := a.Get(e.Key); ok {
					n++
				}
			}
			if n != a.Len() || a.Intersects(&b) || !a.Overlaps([]byte("user001"), nil) {
				t.Error("read something else")
			}
		})
	}
	readers.Wait()
}

func TestSetStalePositionPanics(t *testing.T) {
	var w Set
	w.Put([]byte("a"), nil)
	p := w.first()
	w.Put([]byte("a"), nil)
	require.Panics(t, func() { w.entryAt(p) })
	require.Panics(t, func() { w.next(p) })
	require.Panics(t, func() { w.prev(p) })
	require.Panics(t, func() { w.entryAt(position{}) })
}

func TestRecordBytes(t *testing.T) {
	require.EqualValues(t, recordBytes, reflect.TypeFor[record]().Size())
	require.EqualValues(t, blockBytes, reflect.TypeFor[block]().Size())
}

// TestSetOfOneRecord checks what a program pays for each transaction of one record whose set is not reused.
func TestSetOfOneRecord(t *testing.T) {
	key, value := make([]byte, 16), make([]byte, 1000)
	var w *Set
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		w = new(Set)
		w.Put(key, value)
	}), 6.0)
	require.Less(t, w.Bytes(), int64(1500))
}

func TestOnlyEntry(t *testing.T) {
	var w Set
	check := func(key, value string, put, one bool) {
		t.Helper()
		k, v, ok := OnlyPut(&w)
		require.Equal(t, put, ok)
		require.Equal(t, key+value, string(k)+string(v))
		hash, ok := OnlyHash(&w)
		require.Equal(t, one, ok)
		if one {
			require.Equal(t, HashKey([]byte("a")), hash)
		}
	}
	check("", "", false, false)
	w.Delete([]byte("a"))
	check("", "", false, true)
	w.Put([]byte("a"), []byte("1"))
	check("a", "1", true, true)
	w.Put([]byte("a"), []byte("23"))
	check("a", "23", true, true)
	w.PutRef([]byte("a"), ValueRef{Len: 5, Extents: []logstore.Extent{{}}})
	check("", "", false, true)
	w.Put([]byte("b"), nil)
	check("", "", false, false)
	w.Reset()
	check("", "", false, false)
}

func TestHeadOf(t *testing.T) {
	for _, c := range []struct {
		key  string
		skip int
		want uint64
	}{
		{"", 0, 0}, {"", 3, 0}, {"a", 0, 'a' << 56}, {"a", 1, 0}, {"abcdefgh", 0, 0x6162636465666768},
		{"abcdefghi", 1, 0x6263646566676869}, {"abcdefgh", 1, 0x6263646566676800}, {"xyab", 2, 0x6162 << 48},
	} {
		require.Equal(t, c.want, HeadOf([]byte(c.key), c.skip), "%q after %d", c.key, c.skip)
	}
}
