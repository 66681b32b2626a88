package btree

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// tiny returns a key of the given length. An even leaf of records with such keys and small values has at most
// maxLeafCount records, even if the page has room for more.
func tiny(i, bytes int) []byte {
	return []byte{0, 0, 0, byte(i >> 16), byte(i >> 8), byte(i)}[6-bytes:]
}

// leafCounts returns the records of each leaf, in key order.
func (t *tree) leafCounts(tb testing.TB) (counts []int) {
	_, err := CheckTree(t, rootID, func(_ PageID, n Node) error {
		if n.IsLeaf() {
			counts = append(counts, n.Count())
		}
		return nil
	})
	require.NoError(tb, err)
	return counts
}

// TestTinyRecordsAreMerged: two leaves are not merged if the result would have more records than a page may have.
func TestTinyRecordsAreMerged(t *testing.T) {
	for _, bytes := range []int{2, 3, 4} {
		tr := newTree()
		defer tr.memory.Close()
		var ops []Op
		for i := range 2 * maxLeafCount {
			ops = append(ops, Op{Key: tiny(i, bytes)})
		}
		tr.mustApply(t, ops...)
		require.Equal(t, []int{maxLeafCount, maxLeafCount}, tr.leafCounts(t))
		for i := range maxLeafCount {
			if i%2 == 0 || i < 100 {
				tr.mustApply(t, del(string(tiny(i, bytes))))
			}
			if i < 150 {
				tr.mustApply(t, del(string(tiny(maxLeafCount+i, bytes))))
			}
			for _, n := range tr.leafCounts(t) {
				require.LessOrEqual(t, n, maxLeafCount)
			}
		}
		tr.write(t)
	}
}

// TestTinyRecordsAreSplit: a leaf that is full only because of its number of records is split in halves like
// others.
func TestTinyRecordsAreSplit(t *testing.T) {
	inTurn(t)
	for _, bytes := range []int{3, 4, 5, 6} {
		tr := newTree()
		defer tr.memory.Close()
		const records = 20_000
		for i, k := range rand.New(rand.NewSource(1)).Perm(records) {
			tr.mustApply(t, Op{Key: tiny(k, bytes)})
			if i%1000 == 0 {
				tr.forget(tr.seq)
			}
		}
		counts := tr.leafCounts(t)
		require.Less(t, len(counts), records/(maxLeafCount/2), "key of %d bytes", bytes)
		tr.write(t)
	}
}
