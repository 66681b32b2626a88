package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopiesStay: after a batch was logged, and before it is inserted in its memtable, all batches before it may be
// merged and the memtable retired. The batch then belongs to the next memtable. So must the memory of its keys and
// values, because the memory of the retired memtable is reused while readers use the next one.
func TestCopiesStay(t *testing.T) {
	e := newEngine(t, Options{Durability: Durable, Manual: true})
	const ops = 8
	value := func(i int) string { return fmt.Sprintf("value %0*d", 20+i/100, i) } // values grow, so that later batches need more memory
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
