package dbm

import (
	"context"
	"encoding/binary"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var rangeMeasure = flag.Int("range.measure", 0, "measure DeleteRange of parts and of all of a database with this number of records")

// TestMeasureDeleteRange measures what DeleteRange of few and of many records takes: its time, the processor's, what
// it writes, and how long until the file is smaller.
func TestMeasureDeleteRange(t *testing.T) {
	if *rangeMeasure == 0 {
		t.Skip("-range.measure tells how many records")
	}
	all := *rangeMeasure
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i)) }
	for _, n := range []int{all / 10_000, all / 1000, all / 100, all / 10, all - 2} {
		db, err := Open(filepath.Join(t.TempDir(), "db"), nil)
		require.NoError(t, err)
		value := make([]byte, 100)
		err = db.Load(context.Background(), func(yield func(k, v []byte) bool) {
			for i := 0; i < all && yield(key(i), value); i++ {
			}
		}, LoadOptions{})
		require.NoError(t, err)
		require.NoError(t, db.Checkpoint())
		before, user, begin := db.Stats(), usedTime(), time.Now()
		require.NoError(t, db.DeleteRange(key(1), key(1+n)))
		took, used, after := time.Since(begin), usedTime()-user, db.Stats()
		begin = time.Now()
		wanted := before.FileBytes - int64(n)*116*9/10
		for db.Stats().FileBytes > wanted && time.Since(begin) < 20*time.Second {
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%8d of %d records: %v, processors %v, %d KiB written in %d syncs; after %v the file is %d MB instead of %d, processors %v", n, all, took, used,
			(after.PagesWritten-before.PagesWritten)*4, after.Syncs-before.Syncs, time.Since(begin), db.Stats().FileBytes/1e6, before.FileBytes/1e6, usedTime()-user-used)
		require.NoError(t, db.Close())
	}
}
