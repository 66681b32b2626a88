//go:build linux

package dbm

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stretchr/testify/require"
)

// This compares a scan of records that were overwritten at random and cleaned with a scan of the same records
// loaded in order. Both are read from the device.
func TestSpaceOfScans(t *testing.T) {
	if !*spaceFull {
		t.Skip("make space runs it")
	}
	const size = 100
	const n = 200 << 20 / size
	r := newSpaceRun(t, nil)
	r.fill(n, size)
	require.NoError(t, r.db.Close())
	sorted := filepath.Join(filepath.Dir(r.path), "sorted")
	copied, err := os.ReadFile(r.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(sorted, copied, 0o600))

	r.db, err = Open(r.path, nil)
	require.NoError(t, err)
	order := rand.New(rand.NewPCG(1, 1)).Perm(n)
	value := make([]byte, size-8)
	r.update(2*n, 100, func(tx *Tx, i int) error { return tx.Put(spaceKey(order[i%n]), value) })
	require.NoError(t, r.db.Close())

	scan := func(path string) time.Duration {
		f, err := os.Open(path)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		require.NoError(t, f.Close())
		begin := time.Now()
		db, err := Open(path, &Options{ReadOnly: true})
		require.NoError(t, err)
		records := 0
		require.NoError(t, db.View(func(tx *Tx) error {
			c := tx.Cursor()
			for ok := c.First(); ok; ok = c.Next() {
				records++
			}
			return c.Err()
		}))
		took := time.Since(begin)
		require.Equal(t, n, records)
		require.NoError(t, db.Close())
		return took
	}
	var before, after []time.Duration
	for range 5 {
		before, after = append(before, scan(sorted)), append(after, scan(r.path))
	}
	slices.Sort(before)
	slices.Sort(after)
	t.Logf("sorted load %v, after overwrites %v: %.2f times as fast; each of %v and %v", before[2], after[2],
		before[2].Seconds()/after[2].Seconds(), before, after)
	require.Less(t, after[2], 2*before[2])
}
