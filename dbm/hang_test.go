package dbm

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestReadersWhileWritersHang: commits, checkpoints and compactions hang in an operation of the file system, with
// all locks that they hold. Lookups, cursors and Len continue all the same, even if they need a page for the first
// time, and see what was committed before.
func TestReadersWhileWritersHang(t *testing.T) {
	t.Parallel()
	for _, d := range []Durability{Durable, Buffered} {
		for _, kind := range []vfs.Kind{vfs.OpDatasync, vfs.OpWrite, vfs.OpWriteVec, vfs.OpAllocate} {
			t.Run(fmt.Sprint(d, " ", kind), func(t *testing.T) { readersWhileWritersHang(t, d, kind) })
		}
	}
}

func readersWhileWritersHang(t *testing.T, d Durability, kind vfs.Kind) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	db, err := openEngine(mem, "db", compacting(d))
	require.NoError(t, err)
	want := map[string][]byte{}
	put := func(i, size int) {
		k := fmt.Sprintf("%05d", i)
		want[k] = bytes.Repeat([]byte{byte(i)}, size)
		require.NoError(t, db.Put([]byte(k), want[k]))
	}
	for i := range 500 {
		put(i, []int{10, 100, 400, 9000}[i%4])
	}
	put(500, 300_000)
	require.NoError(t, db.Close())
	db, err = openEngine(mem, "db", compacting(d))
	require.NoError(t, err)
	for i := 100; i < 110; i++ { // these records stay in memory
		put(i, 20)
	}
	require.NoError(t, db.Sync())

	hangs, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == kind {
			once.Do(func() { close(hangs) })
			<-free
		}
		return nil
	})
	var writers sync.WaitGroup
	quit := make(chan struct{})
	for _, write := range []func(i int) error{
		func(i int) error { return db.Put(fmt.Append(nil, "a", i), make([]byte, 2000)) },
		func(i int) error { return db.Put(fmt.Append(nil, "b", i), make([]byte, 400_000)) },
		func(int) error { return db.Checkpoint() },
		func(int) error { return db.Compact(t.Context(), nil) },
	} {
		writers.Go(func() {
			for i := range 20 {
				if err := write(i); err != nil {
					t.Error(err)
				}
				select {
				case <-quit:
					return
				default:
				}
			}
		})
	}
	select {
	case <-hangs:
	case <-time.After(patience):
		t.Error("nothing hangs")
	}
	time.Sleep(10 * time.Millisecond) // time for the others to reach the point at which they wait
	read := make(chan struct{})
	go func() {
		defer close(read)
		for k, v := range want {
			got, err := db.Get([]byte(k))
			if err != nil || !bytes.Equal(v, got) {
				t.Error(k, err)
			}
		}
		if err := db.View(func(tx *Tx) error {
			n := 0
			for k, v := range tx.All() {
				if old, ok := want[string(k)]; ok {
					n++
					if !bytes.Equal(v, old) {
						t.Errorf("%s has another value", k)
					}
				}
			}
			if n != len(want) {
				t.Errorf("%d records of %d", n, len(want))
			}
			return tx.Err()
		}); err != nil {
			t.Error(err)
		}
		if n, err := db.Len(); err != nil || n < int64(len(want)) {
			t.Error(n, err)
		}
	}()
	select {
	case <-read:
	case <-time.After(patience):
		t.Error("a reader waits for a writer")
	}
	close(quit)
	mem.OnOp(nil)
	close(free)
	writers.Wait()
	<-read
	require.NoError(t, db.Check(t.Context()))
	require.NoError(t, db.Close())
}
