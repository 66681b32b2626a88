package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopiesStay: a table may be retired between the moment when a batch is logged and the one when it is inserted:
// all batches before it are merged meanwhile. The batch then belongs to the next table, and so must the memory of its
// keys and values: the retired table is used again while readers have the next one.
func TestCopiesStay(t *testing.T) {
	e := newEngine(t, Options{Durability: Durable, Manual: true})
	const ops = 8
	value := func(i int) string { return fmt.Sprintf("value %0*d", 20+i/100, i) } // ever longer: later batches need more memory
	i := 0
	commit := func() {
		tx := begin(t, e, TxOptions{})
		for range ops {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%06d", i*7919%100_003), []byte(value(i))))
			i++
		}
		require.NoError(t, tx.Commit())
	}
	var readers []*Tx
	var first []int
	turns := 0
	for n := 0; n < 8*turnEntries; n += ops {
		active := e.tree.tables.active
		commit()
		if e.tree.tables.active != active && turns < 3 {
			turns++
			readers, first = append(readers, begin(t, e, TxOptions{ReadOnly: true})), append(first, i-ops)
		}
	}
	require.Equal(t, 3, turns)
	for r, tx := range readers {
		for k := first[r]; k < first[r]+ops; k++ {
			require.Equal(t, value(k), get(t, tx, fmt.Sprintf("%06d", k*7919%100_003)), "reader %d", r)
		}
		require.NoError(t, tx.Rollback())
	}
}
