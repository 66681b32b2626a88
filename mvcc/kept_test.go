package mvcc

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// lookedAt is how many commits there are for what nobody can see to be looked at twice.
const lookedAt = 3 * accountPages / 7

// TestSetsAreHandedOn: single writes reuse few sets and nodes; those of a committer that is alone reuse the same set
// at once. Sets of large records are not among them, and no node keeps a set that is reused. What other databases of
// the process have written changes nothing.
func TestSetsAreHandedOn(t *testing.T) {
	other := newEngine(t, Options{Durability: Buffered})
	var many []*Tx
	for range lookedAt {
		tx := begin(t, other, TxOptions{})
		for i := range 500 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%05d", i), make([]byte, 100)))
		}
		many = append(many, tx)
	}
	for _, tx := range many {
		require.NoError(t, tx.Rollback())
	}
	e := newEngine(t, Options{Durability: Buffered, Manual: true, RedoLimit: 1 << 30})
	write := func(n, size int) {
		for i := range n {
			require.NoError(t, e.WriteOne(fmt.Appendf(nil, "%05d", i), make([]byte, size), false))
		}
	}
	look := func() (nodes []*commitNode) {
		require.NoError(t, e.tree.withMerged(func() error {
			if err := e.tree.merge(); err != nil {
				return err
			}
			e.tree.reclaim()
			require.LessOrEqual(t, len(e.tree.sets.leaders), keptSets)
			for _, set := range e.tree.sets.leaders {
				require.Zero(t, set.Len())
				require.LessOrEqual(t, set.Bytes(), int64(keptBytes))
			}
			for _, s := range e.tree.sets.spent {
				nodes = append(nodes, s.node)
			}
			return nil
		}))
		return nodes
	}
	besideOther := func(n, size int) {
		other := begin(t, e, TxOptions{}) // it may look at all that is committed meanwhile
		write(n, size)
		require.Len(t, e.tree.sets.spent, n)
		require.NoError(t, other.Rollback())
	}
	write(lookedAt, 10)
	require.Empty(t, e.tree.sets.spent)
	require.Empty(t, e.tree.sets.leaders)
	require.Nil(t, e.committer.resolver.list.Head().Value.set)
	besideOther(lookedAt, 10)
	require.Empty(t, look())
	require.Len(t, e.tree.sets.leaders, keptSets)
	require.Nil(t, e.committer.resolver.list.Head().Value.set)
	write(lookedAt, 2*keptBytes)
	look()
	for range 2 { // the pool lets go of large ones
		runtime.GC()
	}
	besideOther(lookedAt, 10)
	require.Empty(t, look())
	require.NotEmpty(t, e.tree.sets.leaders)
}

// TestKeptSetIsNotSeen: a transaction that may look at a committed set finds the set as it was committed, whenever
// the transaction began.
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
