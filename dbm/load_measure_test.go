package dbm

import (
	"encoding/binary"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	loadMeasure = flag.Int("load.measure", 0, "measure loads of this number of sorted records of 16 and 100 bytes, beside what the device writes in sequence")
	loadDir     = flag.String("load.dir", "", "directory of the measured files; empty: a temporary one")
	loadSpace   = flag.String("load.into", "", "keyspace of a database with other keyspaces that is replaced by the records; empty: an empty database")
	loadBeside  = flag.Bool("load.beside", false, "four goroutines put records meanwhile; how long their puts take is told")
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
		into, opts := db.Load, LoadOptions{Sorted: true}
		if *loadSpace != "" {
			require.NoError(t, cmpErr(db.CreateKeyspace("a"), db.CreateKeyspace(*loadSpace), db.Put([]byte("k"), nil)))
			into, opts.Replace = db.Keyspace(*loadSpace).Load, true
		}
		var slow func()
		if *loadBeside {
			slow = putsBeside(t, db)
		}
		begin := time.Now()
		require.NoError(t, into(t.Context(), records, opts))
		load := time.Since(begin)
		if slow != nil {
			slow()
		}
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

// putsBeside puts records with four goroutines until stop, which says how many, and how long they took.
func putsBeside(t *testing.T, db *DB) (stop func()) {
	done := make(chan struct{})
	took := make([][]time.Duration, 4)
	var wg sync.WaitGroup
	for w := range took {
		wg.Go(func() {
			for i := uint64(w) << 32; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				begin := time.Now()
				if err := db.Put(binary.BigEndian.AppendUint64(nil, i*0x9E3779B97F4A7C15), make([]byte, 100)); err != nil {
					t.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(begin))
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
		all := slices.Sorted(slices.Values(slices.Concat(took...)))
		t.Logf("%d puts beside: half in %v, 99 %% in %v, 99.9 %% in %v, all in %v", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)*999/1000], all[len(all)-1])
	}
}
