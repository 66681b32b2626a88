package dbm

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var asyncMeasure = flag.Duration("async.measure", 0, "measure for so long each how fast puts are made durable, several under way at once, by each way")

// TestMeasureAsync measures how many puts of 100 bytes under random keys become durable per second, and how long a
// single one takes. It compares by turns: as many goroutines as there are puts at once, a loop of Buffered puts
// with a Sync, and a single goroutine that calls PutAsync.
func TestMeasureAsync(t *testing.T) {
	if *asyncMeasure == 0 {
		t.Skip("-async.measure tells how long")
	}
	ways := []struct {
		name       string
		durability Durability
		put        func(t *testing.T, db *DB, under int, until time.Time) []time.Duration
	}{
		{"goroutines", Durable, putByGoroutines}, {"loop", Buffered, putAndSync},
		{"PutAsync, Durable", Durable, putAsync}, {"PutAsync, Buffered", Buffered, putAsync},
	}
	for _, under := range []int{50, 5000} {
		for range 3 {
			for _, way := range ways {
				db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: way.durability})
				require.NoError(t, err)
				begin := time.Now()
				took := way.put(t, db, under, begin.Add(*asyncMeasure))
				all := time.Since(begin)
				require.NoError(t, db.Close())
				slices.Sort(took)
				t.Logf("%4d under way, %-18s %7.1f thousand a second, p50 %v, p99 %v", under, way.name, float64(len(took))/1e3/all.Seconds(),
					took[len(took)/2], took[len(took)*99/100])
			}
		}
	}
}

// randomPut returns a function that puts a record under a random key in the given way.
func randomPut(seed uint64, put func(key, value []byte) error) func() error {
	r := rand.New(rand.NewPCG(1, seed))
	key, value := make([]byte, 16), make([]byte, 100)
	return func() error {
		binary.BigEndian.PutUint64(key, r.Uint64())
		return put(key, value)
	}
}

func putByGoroutines(t *testing.T, db *DB, under int, until time.Time) []time.Duration {
	took := make([][]time.Duration, under)
	var wg sync.WaitGroup
	for g := range under {
		wg.Go(func() {
			put := randomPut(uint64(g), db.Put)
			for {
				begin := time.Now()
				if begin.After(until) {
					return
				}
				if err := put(); err != nil {
					t.Error(err)
					return
				}
				took[g] = append(took[g], time.Since(begin))
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...)
}

func putAndSync(t *testing.T, db *DB, under int, until time.Time) (took []time.Duration) {
	put := randomPut(0, db.Put)
	begun := make([]time.Time, under)
	for time.Now().Before(until) {
		for i := range begun {
			begun[i] = time.Now()
			if err := put(); err != nil { // require.NoError takes a fifth as long as a put
				t.Fatal(err)
			}
		}
		require.NoError(t, db.Sync())
		for _, begin := range begun {
			took = append(took, time.Since(begin))
		}
	}
	return took
}

func putAsync(t *testing.T, db *DB, under int, until time.Time) (took []time.Duration) {
	room := make(chan signal, under)
	var begin time.Time
	put := randomPut(0, func(key, value []byte) error {
		begin := begin
		return db.PutAsync(key, value, func(err error) { // calls come one at a time
			if err != nil {
				t.Error(err)
			}
			took = append(took, time.Since(begin))
			<-room
		})
	})
	for {
		room <- signal{}
		if begin = time.Now(); begin.After(until) {
			break
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
	}
	for range under - 1 { // all calls have come
		room <- signal{}
	}
	return took
}
