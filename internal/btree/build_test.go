package btree

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pageList is a sink that keeps the images of the pages in a tree, or, with counts, only counts them.
type pageList struct {
	t      *tree
	images map[PageID][]byte
	pages  int
	roots  int
	counts bool
	fail   int // number of the page that cannot be allocated
}

func (l *pageList) Page(root bool) (PageID, []byte, error) {
	l.pages++
	if l.pages == l.fail {
		return 0, nil, fmt.Errorf("page %d cannot be had", l.fail)
	}
	id := PageID(1000 + l.pages)
	if root {
		id = rootID
		l.roots++
	}
	if l.counts {
		return id, nil, nil
	}
	image := bytes.Repeat([]byte{0xAA}, PageSize)
	clear(image[:MuxSize])
	l.images[id] = image
	return id, image[MuxSize:], nil
}

func buildAll(tb testing.TB, sink PageSink, even bool, m model) {
	b := NewBuilder(sink, even)
	for _, k := range m.sorted() {
		require.NoError(tb, b.Add(&Op{Key: []byte(k), Value: m[k].value, Ref: m[k].ref}))
	}
	require.NoError(tb, b.Finish())
	require.EqualValues(tb, len(m), b.Records())
}

// TestBuild builds trees of random records, compares them with a model, and compares each leaf with the output of
// Encode.
func TestBuild(t *testing.T) {
	for _, space := range append(keyspaces, all) {
		t.Run(space.name, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(6) {
				r := rand.New(rand.NewSource(seed))
				tr := newTree()
				if seed >= 3 {
					tr.length = []int{8, 100, 300}[r.Intn(3)]
				}
				m := model{}
				size := []int{0, 1, 2, 40, 3000, 6000}[seed]
				if space.name == "huge" {
					size = min(size, 40)
				}
				if size > 0 {
					tr.batch(r, m, space.key, size, 0)
				}
				l := &pageList{t: tr, images: map[PageID][]byte{}}
				buildAll(t, l, seed%2 == 1, m)
				require.Equal(t, 1, l.roots)
				for id, image := range l.images {
					require.NoError(t, CheckPage(image), "page %d", id)
					n := View(image)
					tr.pages[id] = []pageVersion{{node: n}}
					if n.IsLeaf() {
						body := make([]byte, BodySize)
						n.Encode(body, seed%2 == 1)
						require.Equal(t, body, image[MuxSize:], "a leaf is not what Encode makes of its records")
					}
				}
				check(t, snapshot{tr, tr.seq}, m, r, space.key)

				count := &pageList{counts: true}
				buildAll(t, count, seed%2 == 1, m)
				require.Equal(t, l.pages, count.pages, "pages where they are only counted")
			}
		})
	}
}

// TestBuildIsFull builds a tree of records of one size. All leaves except the last are full, and the inner nodes
// nearly so.
func TestBuildIsFull(t *testing.T) {
	l := &pageList{images: map[PageID][]byte{}}
	b := NewBuilder(l, false)
	const n = 40_000
	for i := range n {
		require.NoError(t, b.Add(&Op{Key: fmt.Appendf(nil, "%016d", i), Value: make([]byte, 100)}))
	}
	require.NoError(t, b.Finish())
	leaves, inner, height := 0, 0, 0
	for _, image := range l.images {
		v := View(image)
		height = max(height, v.Level())
		if v.IsLeaf() {
			leaves++
		} else {
			inner++
		}
	}
	each := roomBytes / (leafEntryBytes + 116)
	assert.Equal(t, (n+each-1)/each, leaves)
	assert.Equal(t, 2, height)
	assert.LessOrEqual(t, inner, leaves/100)
}

func TestBuildRefusesDisorder(t *testing.T) {
	for _, second := range []string{"a", "b", "b\x00"[:1]} {
		b := NewBuilder(&pageList{counts: true}, true)
		require.NoError(t, b.Add(&Op{Key: []byte("b")}))
		require.ErrorIs(t, b.Add(&Op{Key: []byte(second)}), ErrOrder)
	}
	long := bytes.Repeat([]byte("k"), 2000)
	b := NewBuilder(&pageList{counts: true}, true)
	put := func(last byte) error {
		key := append(bytes.Clone(long), last)
		return b.Add(&Op{Key: key, Ref: &Ref{ID: 1, KeyLen: uint32(len(key)), Kind: Run}})
	}
	require.NoError(t, put(2))
	require.ErrorIs(t, put(1), ErrOrder, "keys with the same part in the leaf are compared whole")
	require.NoError(t, put(3))
}

func TestBuildReturnsErrorsOfTheSink(t *testing.T) {
	for fail := 1; ; fail++ {
		l := &pageList{counts: true, fail: fail}
		b := NewBuilder(l, true)
		var err error
		for i := 0; i < 3000 && err == nil; i++ {
			err = b.Add(&Op{Key: fmt.Appendf(nil, "%0400d", i), Value: make([]byte, 1000)})
		}
		if err == nil {
			err = b.Finish()
		}
		if l.pages < fail {
			require.NoError(t, err)
			require.Greater(t, fail, 1000)
			return
		}
		require.ErrorContains(t, err, fmt.Sprintf("page %d cannot be had", fail))
		fail += fail / 4
	}
}
