package mvcc

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestBesideSyncCallsInOrder: the write of the second group fails while the first one is being synced. Callbacks must
// come in the order of commits.
func TestBesideSyncCallsInOrder(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true, Thresholds: Thresholds{SyncBeside: true}})
	put(t, e, "k", "0")
	require.NoError(t, e.store.Reserve(1000, false))
	e.store.Release(1000)
	gate := &syncGate{open: make(chan struct{})}
	gate.shut.Store(true)
	mem.OnOp(func(op vfs.Op) error {
		if (op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec) && gate.waiting.Load() > 0 {
			return errors.New("no write")
		}
		return gate.hook(op)
	})
	var mu sync.Mutex
	var calls []string
	async := func(key string) {
		require.NoError(t, e.WriteOneAsync([]byte(key), []byte("v"), false, true, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint(key, " ", err != nil))
		}))
	}
	release := e.HoldToken()
	async("1a")
	async("1b")
	release()
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	if err := e.WriteOneAsync([]byte("2"), []byte("v"), false, true, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprint("2 ", err != nil))
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	close(gate.open)
	eventually(t, "all are called", func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) == 3 })
	e.Close()
	require.Equal(t, []string{"1a", "1b", "2"}, []string{calls[0][:2], calls[1][:2], calls[2][:1]}, "%q", calls)
}

// TestBesideSyncThenTokenSync: a group is being synced without the token. The next leader syncs with the token,
// because fewer than besideLeast commit or the device has become slow. It merges nothing that is not durable. (With
// Options.SyncBeside no test gets here, because every committer of the first group counts as active.)
func TestBesideSyncThenTokenSync(t *testing.T) {
	e, gate := besideEngine(t, Options{})
	done := make(chan error, 3)
	applied := e.marks.applied.Load()
	commitTogether(t, e, 2, "first", "value", done)
	eventually(t, "the first group is being synced", func() bool { return gate.waiting.Load() == 1 })
	e.opts.SyncBeside = false
	commitBehind(e, "second", "value", done)
	time.Sleep(aWhile)
	require.Equal(t, applied+1, e.marks.applied.Load(), "it waits")
	require.LessOrEqual(t, e.readers.views.newest.Load().Base, applied, "what is merged is durable")
	_, found, err := e.GetCopy([]byte("first0"))
	require.NoError(t, err)
	require.False(t, found)
	gate.shut.Store(false)
	close(gate.open)
	within(t, func() {
		for range 3 {
			require.NoError(t, <-done)
		}
		require.NoError(t, e.Close())
	})
}

// TestCloseFindsStrayToken: the caller of an asynchronous commit may take the token after the callback has returned,
// and hand it to a goroutine that has ended. Close takes it from there.
func TestCloseFindsStrayToken(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	require.True(t, e.token.try())
	e.committer.async.token <- lead
	within(t, func() { require.NoError(t, e.Close()) })
}
