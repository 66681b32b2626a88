package mvcc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlicesOfReaderStay: slices that a reader has returned stay unchanged while all segments of the log are reused
// many times. This includes slices of a page whose cells a version in memory borrowed until that version was written.
func TestSlicesOfReaderStay(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			opts := tiny(d)
			opts.Manual = true
			e := newEngine(t, opts)
			for i := range 20 {
				put(t, e, fmt.Sprintf("k%02d", i), strings.Repeat(fmt.Sprint(i%10), 100))
			}
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Checkpoint())
			put(t, e, "k00", "a version in memory")

			tx := begin(t, e, TxOptions{ReadOnly: true})
			defer tx.Rollback()
			var given [][]byte
			var want []string
			c := tx.Cursor()
			for c.Next() {
				v, err := c.Value()
				require.NoError(t, err)
				given = append(given, c.Key(), v)
				want = append(want, string(c.Key()), string(v))
			}
			require.NoError(t, c.Err())
			require.NoError(t, e.Checkpoint())
			for i := range 60 {
				put(t, e, fmt.Sprintf("k%02d", i%20), strings.Repeat("x", 100+i))
				require.NoError(t, e.Checkpoint())
				for j := range given {
					require.Equal(t, want[j], string(given[j]), "after %d checkpoints", i)
				}
			}
		})
	}
}
