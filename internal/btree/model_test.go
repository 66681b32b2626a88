package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// record is what the model has for a key.
type record struct {
	value []byte
	ref   *Ref
}

type model map[string]record

func (m model) sorted() []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// A keyspace draws keys that are likely to be drawn again.
type keyspace struct {
	name string
	key  func(r *rand.Rand) []byte
}

var keyspaces = []keyspace{
	{"random", func(r *rand.Rand) []byte {
		b := make([]byte, 16)
		binary.BigEndian.PutUint64(b, uint64(r.Intn(3000))*0x9E3779B97F4A7C15)
		return b
	}},
	{"short", func(r *rand.Rand) []byte {
		b := make([]byte, r.Intn(4))
		for i := range b {
			b[i] = []byte{0, 0, 1, 'a', 0xFF}[r.Intn(5)]
		}
		return b
	}},
	{"prefix", func(r *rand.Rand) []byte { return fmt.Appendf(nil, "user/%03d/%05d", r.Intn(3), r.Intn(1000)) }},
	{"ones", func(r *rand.Rand) []byte {
		return append(bytes.Repeat([]byte{0xFF}, r.Intn(60)), bytes.Repeat([]byte{0}, r.Intn(60))...)
	}},
	{"wide", func(r *rand.Rand) []byte { // separators near MaxSeparator, so that a node has few
		b := bytes.Repeat([]byte{byte('a' + r.Intn(6))}, 485+r.Intn(20))
		return fmt.Appendf(b, "%04d", r.Intn(100))
	}},
	{"long", func(r *rand.Rand) []byte { // share 2,000 bytes
		b := bytes.Repeat([]byte{'x'}, 2000)
		return fmt.Appendf(b, "%05d", r.Intn(2000))
	}},
	{"edges", func(r *rand.Rand) []byte { // keys that are prefixes of each other, with lengths around all limits
		at := []int{0, 1, 3, 4, 5, 8, MaxSeparator, MaxInlineKey, 1500, 2100}[r.Intn(10)]
		b := bytes.Repeat([]byte{'k'}, max(0, at+r.Intn(5)-2))
		if r.Intn(2) == 0 {
			b = append(b, byte(r.Intn(3)))
		}
		return b
	}},
	{"huge", func(r *rand.Rand) []byte {
		b := bytes.Repeat([]byte{'h'}, MaxKey-3)
		return fmt.Appendf(b, "%03d", r.Intn(200))
	}},
}

// all draws from any of the keyspaces except the last, which is slow.
var all = keyspace{"all", func(r *rand.Rand) []byte { return keyspaces[r.Intn(len(keyspaces)-1)].key(r) }}

// batch draws ops and applies them to the model. deletes is the percentage of deletes. If the tree has a fixed
// length of values, most batches use it, so that leaves are even where the keys have one length too.
func (t *tree) batch(r *rand.Rand, m model, draw func(*rand.Rand) []byte, size, deletes int) []Op {
	ops := map[string]Op{}
	for range size {
		key := draw(r)
		ops[string(key)] = Op{Key: key, Delete: r.Intn(100) < deletes}
	}
	out := make([]Op, 0, len(ops))
	same := t.length > 0 && r.Intn(8) > 0
	for k, op := range ops {
		if op.Delete {
			delete(m, k)
			out = append(out, op)
			continue
		}
		value := drawValue(r)
		if same {
			value = bytes.Repeat([]byte{byte(r.Intn(256))}, t.length)
		}
		if FitsInline(len(k), len(value)) && r.Intn(50) > 0 {
			op.Value = value
		} else {
			op.Ref = t.run(op.Key, uint64(len(value)))
		}
		m[k] = record{op.Value, op.Ref}
		out = append(out, op)
	}
	slices.SortFunc(out, func(a, b Op) int { return bytes.Compare(a.Key, b.Key) })
	return out
}

func drawValue(r *rand.Rand) []byte {
	n := []int{0, 1, 8, 100, 100, 300, 1024, MaxInline, 5000}[r.Intn(9)]
	b := make([]byte, n)
	for i := 0; i < n; i += 50 {
		b[i] = byte(r.Intn(256))
	}
	return b
}

// check compares a snapshot with the model: structure, order, count, every record in both directions, and absent
// keys.
func check(tb testing.TB, s snapshot, m model, r *rand.Rand, draw func(*rand.Rand) []byte) {
	records, err := CheckTree(s, rootID, func(id PageID, n Node) error { return nil })
	require.NoError(tb, err)
	require.EqualValues(tb, len(m), records)
	keys := m.sorted()
	var c Cursor
	c.Reset(s, rootID)
	for _, k := range keys {
		if !c.Next() {
			require.Fail(tb, "record missing", "%s: %v", brief(k), c.Err())
		}
		requireRecord(tb, k, string(c.Key()), m[k], c.Cell())
	}
	require.False(tb, c.Next())
	for i := len(keys) - 1; i >= 0; i-- {
		if !c.Prev() {
			require.Fail(tb, "record missing", "%s: %v", brief(keys[i]), c.Err())
		}
		if string(c.Key()) != keys[i] {
			require.Equal(tb, keys[i], string(c.Key()))
		}
	}
	require.False(tb, c.Prev())
	require.NoError(tb, c.Err())
	for range 50 {
		probe := draw(r)
		if len(keys) > 0 && r.Intn(2) == 0 {
			probe = near(r, []byte(keys[r.Intn(len(keys))]))
		}
		checkProbe(tb, s, m, keys, probe, &c, r)
	}
}

// near returns k or a key close to it.
func near(r *rand.Rand, k []byte) []byte {
	k = bytes.Clone(k)
	switch r.Intn(5) {
	case 0:
		return append(k, 0)
	case 1:
		return k[:r.Intn(len(k)+1)]
	case 2:
		if len(k) > 0 {
			k[len(k)-1]--
		}
	case 3:
		if len(k) > 0 {
			k[r.Intn(len(k))]++
		}
	}
	return k
}

// requireLeaf checks that Leaf finds the leaf that a lookup uses.
func requireLeaf(tb testing.TB, s snapshot, key []byte, has bool) {
	id, err := Leaf(s, rootID, key)
	require.NoError(tb, err)
	n, err := s.Node(id)
	require.NoError(tb, err)
	require.True(tb, n.IsLeaf())
	_, found, err := n.lookup(s, key)
	require.NoError(tb, err)
	require.Equal(tb, has, found)
}

func checkProbe(tb testing.TB, s snapshot, m model, keys []string, probe []byte, c *Cursor, r *rand.Rand) {
	cell, found, err := Get(s, rootID, probe)
	want, in := m[string(probe)]
	if err != nil || found != in {
		require.Fail(tb, "Get", "found %v, want %v, err %v", found, in, err)
	}
	if found {
		k, err := cell.WholeKey(s)
		require.NoError(tb, err)
		requireRecord(tb, string(probe), string(k), want, cell)
	}
	requireLeaf(tb, s, probe, found)
	at := sort.SearchStrings(keys, string(probe))
	ok := c.Seek(probe)
	for range 6 { // a few steps in both directions
		if in := at >= 0 && at < len(keys); ok != in || c.Valid() != in || c.Err() != nil {
			require.Fail(tb, "cursor", "on a record %v, valid %v, want %v, err %v", ok, c.Valid(), in, c.Err())
		}
		if ok && string(c.Key()) != keys[at] {
			require.Equal(tb, keys[at], string(c.Key()))
		}
		if r.Intn(2) == 0 {
			at, ok = min(at+1, len(keys)), c.Next()
		} else {
			at, ok = max(at-1, -1), c.Prev()
		}
	}
}

func requireRecord(tb testing.TB, wantKey, key string, want record, c Cell) {
	if wantKey != key {
		require.Equal(tb, brief(wantKey), brief(key))
		require.Equal(tb, wantKey, key)
	}
	if want.ref != nil {
		if c.Ref() != *want.ref || c.Value() != nil || c.ValueLen() != want.ref.ValueLen {
			require.Equal(tb, *want.ref, c.Ref())
		}
		return
	}
	if c.Kind() != Inline || !bytes.Equal(want.value, c.Value()) || c.ValueLen() != uint64(len(want.value)) {
		require.Equal(tb, want.value, c.Value())
	}
}

func brief(k string) string {
	if len(k) > 40 {
		return fmt.Sprintf("%s...%s (%d)", k[:8], strings.ToValidUTF8(k[len(k)-8:], "?"), len(k))
	}
	return k
}

// TestModel applies random batches and compares the tree with a map after each, and older snapshots from time to
// time. Meanwhile pages are written to images and old versions are released, as in the store.
func TestModel(t *testing.T) {
	inTurn(t)
	for _, space := range append(keyspaces, all) {
		t.Run(space.name, func(t *testing.T) {
			t.Parallel()
			even := 0
			for seed := range int64(4) {
				even += modelRun(t, space, seed)
			}
			require.True(t, even > 10 || space.name != "prefix", "%d even leaves written", even)
		})
	}
}

func modelRun(t *testing.T, space keyspace, seed int64) (even int) {
	r := rand.New(rand.NewSource(seed))
	tr := newTree()
	tr.memory.Even = seed%2 == 0
	if seed >= 2 {
		tr.length = []int{8, 100, 300}[r.Intn(3)]
	}
	m := model{}
	type past struct {
		seq int
		m   model
	}
	var pasts []past
	deletes, height := 20, 0
	batches := 40
	if testing.Short() || space.name == "huge" {
		batches = 15
	}
	for i := range batches {
		size := []int{1, 1, 2, 5, 20, 100, 600, 2000}[r.Intn(8)]
		if space.name == "huge" {
			size = min(size, 20)
		}
		tr.memory.Even = tr.memory.Even || i == batches/2
		if r.Intn(6) == 0 {
			deletes = []int{0, 20, 50, 80, 100}[r.Intn(5)]
		}
		before := len(m)
		res, err := tr.apply(tr.batch(r, m, space.key, size, deletes))
		require.NoError(t, err)
		require.EqualValues(t, len(m)-before, res.Added)
		check(t, snapshot{tr, tr.seq}, m, r, space.key)
		require.Len(t, tr.live, countRefs(m))
		root, _ := tr.Node(rootID)
		height = max(height, root.Level())
		pasts = append(pasts, past{tr.seq, clone(m)})
		switch {
		case i%7 == 6:
			tr.write(t)
		case i%5 == 4:
			p := pasts[r.Intn(len(pasts))]
			check(t, snapshot{tr, p.seq}, p.m, r, space.key)
		case i%9 == 8:
			pasts = pasts[len(pasts)/2:]
			tr.forget(pasts[0].seq)
		}
	}
	for i, p := range pasts { // the oldest one, and some that were compared when they were the newest
		if i == 0 || r.Intn(4) == 0 {
			check(t, snapshot{tr, p.seq}, p.m, r, space.key)
		}
	}
	t.Logf("seed %d: height %d, %d records, %d bytes held, %d even leaves written", seed, height, len(m), tr.memory.Held(), tr.even)
	tr.forget(tr.seq)
	tr.write(t)
	require.Zero(t, tr.memory.Held())
	tr.memory.Close()
	return tr.even
}

func countRefs(m model) (n int) {
	for _, r := range m {
		if r.ref != nil {
			n++
		}
	}
	return n
}

func clone(m model) model {
	c := make(model, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
