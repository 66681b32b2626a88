package dbm

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	loadMeasure = flag.Int("load.measure", 0, "measure loads of this number of sorted records of 16 and 100 bytes, beside what the device writes in sequence")
	loadDir     = flag.String("load.dir", "", "directory of the measured files; empty: a temporary one")
)

// TestMeasureLoad measures how fast Load is, and by turns how fast a file as long as the database can be written
// sequentially.
func TestMeasureLoad(t *testing.T) {
	if *loadMeasure == 0 {
		t.Skip("-load.measure tells how many records")
	}
	dir := *loadDir
	if dir == "" {
		dir = t.TempDir()
	}
	path, raw := filepath.Join(dir, "db"), filepath.Join(dir, "raw")
	records := func(yield func(k, v []byte) bool) {
		key, value := make([]byte, 16), make([]byte, 100)
		for i := range *loadMeasure {
			binary.BigEndian.PutUint64(key[8:], uint64(i))
			binary.LittleEndian.PutUint64(value, uint64(i)*0x9E3779B97F4A7C15)
			if !yield(key, value) {
				return
			}
		}
	}
	for range 3 {
		db, err := Open(path, nil)
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, db.Load(t.Context(), records, LoadOptions{Sorted: true}))
		load := time.Since(begin)
		bytes := db.Stats().LiveBytes
		require.NoError(t, db.Close())
		require.NoError(t, os.Remove(path))

		f, err := os.Create(raw)
		require.NoError(t, err)
		chunk := make([]byte, 1<<20)
		begin = time.Now()
		for n := int64(0); n < bytes; n += int64(len(chunk)) {
			binary.LittleEndian.PutUint64(chunk, uint64(n))
			_, err := f.Write(chunk)
			require.NoError(t, err)
		}
		require.NoError(t, f.Sync())
		device := time.Since(begin)
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(raw))
		mb := float64(bytes) / 1e6
		t.Logf("load %v, %.0f MB/s, %.2f million records a second; device %.0f MB/s; %.2f of it", load, mb/load.Seconds(),
			float64(*loadMeasure)/1e6/load.Seconds(), mb/device.Seconds(), device.Seconds()/load.Seconds())
	}
}
