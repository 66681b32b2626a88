package mvcc

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// TestLeaseAsked: if a snapshot is revoked during a call of its transaction, it is held until that call ends, and no
// longer.
func TestLeaseAsked(t *testing.T) {
	const age = 5 * time.Millisecond
	e := newEngine(t, Options{Manual: true, Leases: LeaseOptions{MaxAge: age}})
	put(t, e, "key", "value")
	tx := begin(t, e, TxOptions{ReadOnly: true})
	for tx.Enter() != nil { // on a busy machine it may already be too old
		require.NoError(t, tx.Rollback())
		tx = begin(t, e, TxOptions{ReadOnly: true})
	}
	time.Sleep(2 * age)
	require.NoError(t, e.maintenance.endOldSnapshots())
	require.Equal(t, "value", get(t, tx, "key"))
	require.Equal(t, 1, e.readers.registry.Count())
	tx.Leave()
	require.Zero(t, e.readers.registry.Count())
	require.ErrorIs(t, tx.Enter(), ErrSnapshotTooOld)
	require.NoError(t, tx.Rollback())
}

// TestCloseAwaitsWrites: Close waits for a transaction that writes a large value or spills its write set, even if its
// snapshot is revoked meanwhile or was revoked before. A call that writes one record does not check its snapshot.
func TestCloseAwaitsWrites(t *testing.T) {
	const age = time.Millisecond
	large := make([]byte, 12<<20)
	records := func(tx *Tx) (err error) {
		for i := 0; i < 8_000 && err == nil; i++ {
			err = tx.Put(fmt.Append(nil, i), make([]byte, 1000))
		}
		return err
	}
	for name, c := range map[string]struct {
		early bool // the snapshot is revoked before the write
		write func(tx *Tx) error
	}{
		"large":       {false, func(tx *Tx) error { return tx.Put([]byte("k"), large) }},
		"large, lost": {true, func(tx *Tx) error { return tx.Put([]byte("k"), large) }},
		"read":        {false, func(tx *Tx) error { return tx.PutReader([]byte("k"), bytes.NewReader(large), 0) }},
		"read, lost":  {true, func(tx *Tx) error { return tx.PutReader([]byte("k"), bytes.NewReader(large), 0) }},
		"many":        {false, records},
		"many, lost":  {true, records},
		"one":         {false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var wait atomic.Bool
			reached, goOn := make(chan struct{}), make(chan struct{})
			mem := vfs.NewMem(0)
			defer mem.Release()
			e := openOn(t, vfs.Faulty(mem, func(op vfs.Op) error {
				if op.Kind == vfs.OpWrite && wait.Swap(false) {
					close(reached)
					<-goOn
				}
				return nil
			}), Options{Durability: Buffered, Manual: true, MemoryLimit: 8 << 20, Leases: LeaseOptions{MaxAge: age}})
			written := make(chan error, 1)
			var tx *Tx
			if c.write == nil {
				wait.Store(true)
				go func() { written <- e.WriteOne([]byte("k"), large, false) }()
			} else {
				tx = begin(t, e, TxOptions{})
				if c.early {
					time.Sleep(2 * age)
					require.NoError(t, e.maintenance.endOldSnapshots())
				}
				wait.Store(true)
				go func() { written <- c.write(tx) }()
			}
			<-reached
			time.Sleep(2 * age)
			require.NoError(t, e.maintenance.endOldSnapshots())
			require.True(t, e.readers.used())
			close(goOn)
			require.NoError(t, <-written)
			if tx != nil {
				require.False(t, e.readers.used(), "what lost its snapshot and is in no call holds up nobody")
				require.NoError(t, tx.Commit())
			}
			require.NoError(t, e.Close())
		})
	}
}

// TestWritesAfterClose: a transaction that has lost its snapshot does not write to a file that is closed.
func TestWritesAfterClose(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	const age = time.Millisecond
	e := openOn(t, mem, Options{Durability: Buffered, Manual: true, MemoryLimit: 8 << 20, Leases: LeaseOptions{MaxAge: age}})
	tx, other := begin(t, e, TxOptions{}), begin(t, e, TxOptions{})
	time.Sleep(2 * age)
	require.NoError(t, e.maintenance.endOldSnapshots())
	require.NoError(t, e.Close())
	require.ErrorIs(t, tx.Put([]byte("k"), make([]byte, 64<<20)), ErrClosed)
	err := error(nil)
	for i := 0; i < 20_000 && err == nil; i++ {
		err = other.Put(fmt.Append(nil, i), make([]byte, 1000))
	}
	require.ErrorIs(t, err, ErrClosed)
	for _, tx := range []*Tx{tx, other} {
		require.ErrorIs(t, tx.Commit(), ErrClosed)
	}
	require.False(t, e.readers.used())
}
