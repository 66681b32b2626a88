package dbm

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestStatsWhileASyncHangs: a commit hangs in its sync, with all the locks that it holds then. Stats returns all
// the same.
func TestStatsWhileASyncHangs(t *testing.T) {
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	db, err := open(mem, "f", nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	hangs, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			once.Do(func() { close(hangs) })
			<-free
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- db.Put([]byte("b"), []byte("2")) }()
	<-hangs
	told := make(chan Stats)
	go func() { told <- db.Stats() }()
	select {
	case s := <-told:
		require.EqualValues(t, 1, s.Records, "what is not durable does not count")
		require.Positive(t, s.FileBytes)
		require.Positive(t, s.UnsyncedBytes)
		require.Positive(t, s.SyncTime)
		require.Empty(t, s.Failed)
	case <-time.After(patience):
		t.Error("Stats waits for a sync")
	}
	mem.OnOp(nil)
	close(free)
	require.NoError(t, <-done)
	require.EqualValues(t, 2, db.Stats().Records)
	require.NoError(t, db.Close())
	require.Zero(t, db.Stats())
}

// TestStatsSayWhyTheHandleFailed: after a failed sync, Stats has the reason.
func TestStatsSayWhyTheHandleFailed(t *testing.T) {
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	db, err := open(mem, "f", nil)
	require.NoError(t, err)
	broken := errors.New("the device is gone")
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, db.Put([]byte("a"), []byte("1")), ErrFailed)
	require.Contains(t, db.Stats().Failed, broken.Error())
	db.Close()
}

// TestStatsInJSON: every field has a name in JSON, in the usual form.
func TestStatsInJSON(t *testing.T) {
	all, err := json.Marshal(Stats{OldestSnapshot: "x", Failed: "x"})
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(all, &fields))
	require.Len(t, fields, reflect.TypeFor[Stats]().NumField())
	for name := range fields {
		require.Equal(t, strings.ToLower(name), name)
	}
}

// BenchmarkStats uses a file of about 130 MiB and an open snapshot, which makes Stats examine every segment.
func BenchmarkStats(b *testing.B) {
	db := newDB(b, &Options{Durability: Buffered})
	for i := range 1000 {
		require.NoError(b, db.Update(func(tx *Tx) error {
			for j := range 100 {
				if err := tx.Put(fmt.Appendf(nil, "%08d", i*100+j), make([]byte, 1000)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	tx, err := db.Begin(TxOptions{ReadOnly: true})
	require.NoError(b, err)
	defer tx.Rollback()
	for b.Loop() {
		db.Stats()
	}
	b.ReportMetric(float64(db.Stats().FileBytes>>20), "MiB")
}
