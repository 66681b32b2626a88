package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// TestLastCommitKeepsNothing: the newest node stays in the commit list, but does not keep its transaction's reads and
// context in memory.
func TestLastCommitKeepsNothing(t *testing.T) {
	type held struct {
		context.Context
		bytes []byte
	}
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	gone := make(chan struct{})
	func() {
		ctx := &held{t.Context(), make([]byte, 1<<20)}
		runtime.SetFinalizer(ctx, func(*held) { close(gone) })
		tx := begin(t, e, TxOptions{Serializable: true})
		tx.ctx = ctx
		require.NoError(t, tx.Put([]byte("a"), nil))
		require.NoError(t, tx.Commit())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}, patience, time.Millisecond)
	require.NotNil(t, e.committer.resolver.list.Head())
}

// TestKeptSetIsNotSeen: a transaction that may look at the write set of a commit finds the set unchanged, whenever the
// transaction began.
func TestKeptSetIsNotSeen(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	write := func(key string) { require.NoError(t, e.WriteOne([]byte(key), nil, false)) }
	write("before")
	before := begin(t, e, TxOptions{})
	write("a")
	node := e.committer.resolver.list.Head()
	write("b")
	require.NotNil(t, node.Value.set)
	require.Equal(t, 1, node.Value.set.Len())
	_, ok := node.Value.set.Get([]byte("a"))
	require.True(t, ok)
	require.NoError(t, before.Rollback())
	write("c")
	require.Nil(t, e.committer.resolver.list.Head().Value.set)

	waiting := begin(t, e, TxOptions{})
	e.admission.unpin(waiting)
	write("d")
	require.NotNil(t, e.committer.resolver.list.Head().Value.set, "someone waits for admission")
	require.NoError(t, e.admission.pin(waiting))
	require.NoError(t, waiting.Rollback())
	e.readers.active.Add(1)
	write("e")
	require.NotNil(t, e.committer.resolver.list.Head().Value.set, "someone commits")
	e.readers.active.Add(-1)
	write("f")
	require.Nil(t, e.committer.resolver.list.Head().Value.set)
}

// TestLargeSetsAreNotKept: a transaction whose memory is reused does not keep the memory of large write sets that it
// has committed.
func TestLargeSetsAreNotKept(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	other := begin(t, e, TxOptions{}) // may look at the sets, so their memory is not reused
	var sets []weak.Pointer[writeset.Set]
	used := map[*Tx]bool{}
	for range keptNodes {
		require.NoError(t, update(e, TxOptions{}, func(tx *Tx) error {
			used[tx] = true
			sets = append(sets, weak.Make(tx.writes()))
			return tx.Put([]byte("key"), make([]byte, keptBytes/4))
		}))
	}
	require.NoError(t, other.Rollback())
	runtime.GC()
	kept := 0
	for _, set := range sets {
		if set.Value() != nil {
			kept++
		}
	}
	require.Equal(t, 1, kept, "that of the newest node in the commit list")
	runtime.KeepAlive(used)
	runtime.KeepAlive(e)
}

// TestSetsOfMemtablesStay: if the keys and values of a batch were not copied, its write set is not reused, because
// readers find them in a memtable. If they were copied, it is.
func TestSetsOfMemtablesStay(t *testing.T) {
	for _, c := range []struct{ records, size int }{{3, copyBytes / 8}, {9, copyBytes / 8}, {1, logstore.LeastLogged - 2}, {1, logstore.LeastLogged - 3}} {
		records := c.records
		e := newEngine(t, Options{Thresholds: Thresholds{KeepInline: true}, Durability: Buffered, Manual: true})
		write := func(from int, fill byte) {
			require.NoError(t, update(e, TxOptions{}, func(tx *Tx) error {
				for i := range records {
					require.NoError(t, tx.Put(fmt.Appendf(nil, "%02d", from+i), bytes.Repeat([]byte{fill}, c.size)))
				}
				require.LessOrEqual(t, tx.set.Bytes(), int64(keptBytes))
				return nil
			}))
		}
		write(0, 'a')
		require.Equal(t, records < 8, e.committer.resolver.list.Head().Value.set == nil)
		write(records, 'b')
		view := begin(t, e, TxOptions{ReadOnly: true})
		for i := range 2 * records {
			require.Equal(t, strings.Repeat(string(rune('a'+i/records)), c.size), get(t, view, fmt.Sprintf("%02d", i)))
		}
		require.NoError(t, view.Rollback())
	}
}
