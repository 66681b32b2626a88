package dbm

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOpenMemory: a database in memory behaves like one in a file, respects its limit, is private to its handle,
// and leaves nothing behind.
func TestOpenMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, d := range durabilities {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			db, err := OpenMemory(&Options{Durability: d, MaxFileSize: 64 << 20, FlushInterval: 20 * time.Millisecond})
			require.NoError(t, err)
			other, err := OpenMemory(nil)
			require.NoError(t, err)
			n := scaled(5_000)
			key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
			for range 3 {
				for i := 0; i < n; i += 100 {
					require.NoError(t, db.Update(func(tx *Tx) error {
						for j := range 100 {
							if err := tx.Put(key(i+j), sized(1000, byte(i+j))); err != nil {
								return err
							}
						}
						return nil
					}))
				}
			}
			require.NoError(t, db.Put([]byte("long"), sized(2<<20, 1)))
			require.NoError(t, db.Compact(t.Context(), nil))
			require.NoError(t, db.Check(t.Context()))
			for i := range n {
				v, err := db.Get(key(i))
				require.NoError(t, err)
				require.Equal(t, sized(1000, byte(i)), v)
			}
			count, err := other.Len()
			require.NoError(t, err)
			require.Zero(t, count)
			for i := 0; err == nil && i < 200; i++ {
				err = db.Put(fmt.Appendf(nil, "fill %d", i), sized(1<<20, 2))
			}
			require.ErrorIs(t, err, ErrFull)
			require.LessOrEqual(t, db.Stats().FileBytes, int64(64<<20))
			require.NoError(t, db.Close())
			require.NoError(t, other.Close())
			_, err = db.Get(key(1))
			require.ErrorIs(t, err, ErrClosed)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	for _, o := range []*Options{{ReadOnly: true}, {Beside: true}, {MaxFileSize: -1}} {
		_, err := OpenMemory(o)
		require.Error(t, err)
	}
}
