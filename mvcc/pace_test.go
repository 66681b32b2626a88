package mvcc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestBackgroundSyncs: with Buffered commits, no sync has to wait for many pages of a compaction, a checkpoint or a
// flush. On a device that writes deviceRate bytes per second, a commit is therefore synced little more than an
// interval after it has returned.
func TestBackgroundSyncs(t *testing.T) {
	const (
		interval   = 50 * time.Millisecond
		deviceRate = 100 << 20
		// mostBytes is how much may be written from one sync to the next: what the device writes in a quarter of the
		// interval, and the same again for the steps of background work, the commits in between, and the syncs from
		// which the pace is measured.
		mostBytes = deviceRate / 20 / 4 * 2
	)
	records, least := 120_000, int64(8*mostBytes) // and bytes that must be written, so that there is something to measure
	if testing.Short() {
		records, least = records/4, least/4
	}
	mem := vfs.NewMem(0)
	defer mem.Release()
	var written, most, all atomic.Int64
	mem.OnOp(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpWrite, vfs.OpWriteVec:
			written.Add(op.Len)
			all.Add(op.Len)
		case vfs.OpDatasync:
			n := written.Swap(0)
			most.Store(max(most.Load(), n))
			time.Sleep(time.Duration(n) * time.Second / deviceRate)
		}
		return nil
	})
	e := openOn(t, mem, Options{Durability: Buffered, FlushInterval: interval, MemoryLimit: 64 << 20})
	defer e.Close()
	key := func(i int) []byte { return fmt.Appendf(nil, "%016x", uint64(i)*0x9E3779B97F4A7C15) }
	write := func(n int, do func(tx *Tx, i int) error) {
		for from := 0; from < n; from += 1000 {
			require.NoError(t, update(e, TxOptions{}, func(tx *Tx) (err error) {
				for i := from; i < from+1000 && err == nil; i++ {
					err = do(tx, i)
				}
				return err
			}))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	write(records, func(tx *Tx, i int) error { return tx.Put(key(i), make([]byte, 100)) })
	require.NoError(t, e.Checkpoint()) // merged together with the deletes, the puts would leave a small tree
	write(records/2, func(tx *Tx, i int) error { return tx.Delete(key(r.IntN(records))) })

	most.Store(0)
	all.Store(0)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				put(t, e, fmt.Sprint(i%1000), "value")
			}
		}
	})
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Compact(context.Background(), nil))
	close(stop)
	beside.Wait()
	mem.OnOp(nil)
	t.Logf("%d KiB written, at most %d between two syncs", all.Load()>>10, most.Load()>>10)
	require.Greater(t, all.Load(), least)
	require.Less(t, most.Load(), int64(mostBytes))
	require.NoError(t, e.Check(context.Background()))
}

// TestPacing: how much background work writes between two syncs depends on the speed of the device, within limits.
func TestPacing(t *testing.T) {
	var p pacing
	for range 20 {
		p.synced(0, time.Second)
	}
	require.EqualValues(t, syncMost, p.ahead)
	p.synced(200*time.Millisecond, time.Second)
	require.EqualValues(t, syncMost, p.ahead, "what took less than its share, and more than half of that")
	p.synced(251*time.Millisecond, time.Second)
	require.EqualValues(t, syncMost/2, p.ahead)
	for range 20 {
		p.synced(time.Second, time.Second)
	}
	require.EqualValues(t, syncLeast, p.ahead)
}
