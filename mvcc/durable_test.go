package mvcc

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// syncGate is a hook that delays syncs while it is closed.
type syncGate struct {
	shut    atomic.Bool
	waiting atomic.Int32
	open    chan struct{}
	fails   atomic.Bool // the delayed syncs fail
}

func (g *syncGate) hook(op vfs.Op) error {
	if op.Kind == vfs.OpDatasync && g.shut.Load() {
		g.waiting.Add(1)
		<-g.open
		if g.fails.Load() {
			return errors.New("no sync")
		}
	}
	return nil
}

// TestNothingIsShownBeforeItIsDurable: while a commit waits for its sync, a View does not see it. An update
// transaction sees it, and however that transaction ends, it does not return before the commit is durable.
func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	mine := errors.New("mine")
	for name, end := range map[string]func(tx *Tx) error{
		"commit of nothing": (*Tx).Commit,
		"rollback":          (*Tx).Rollback,
		"commit": func(tx *Tx) error {
			tx.Put([]byte("k"), nil)
			return tx.Commit()
		},
		"error": func(tx *Tx) error {
			tx.Rollback()
			return mine
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			e, gate := gatedEngine(t, mem, Options{Manual: true})
			committed := make(chan error, 1)
			go func() {
				tx, err := e.Begin(TxOptions{})
				if err == nil {
					tx.Put([]byte("k"), []byte("1"))
					for i := range pageGroupOps { // enough for a record group: a page group is in the tree, but published only after the sync
						tx.Put(fmt.Append(nil, i), nil)
					}
					err = tx.Commit()
				}
				committed <- err
			}()
			require.Eventually(t, func() bool { return gate.waiting.Load() > 0 }, patience, time.Millisecond)
			e.marks.publishDurable() // as others do at any time: publishes what the syncs so far have covered

			v, _, err := e.GetCopy([]byte("k"))
			require.NoError(t, err)
			require.Equal(t, "0", string(v))
			view := begin(t, e, TxOptions{ReadOnly: true})
			require.Equal(t, "0", get(t, view, "k"))
			require.NoError(t, view.Commit(), "does not wait")

			update := begin(t, e, TxOptions{})
			require.Equal(t, "1", get(t, update, "k"))
			ended := make(chan error, 1)
			go func() { ended <- end(update) }()
			time.Sleep(20 * time.Millisecond)
			require.Empty(t, ended)
			require.Empty(t, committed)
			gate.shut.Store(false)
			close(gate.open)
			require.NoError(t, <-committed)
			if err := <-ended; err != mine {
				require.NoError(t, err)
			}
			v, _, err = e.GetCopy([]byte("k"))
			require.NoError(t, err)
			if name == "commit" {
				require.Empty(t, v)
			} else {
				require.Equal(t, "1", string(v))
			}
			require.NoError(t, e.Close())
		})
	}
}

// TestPageGroupIsShownWhenSynced: a batch that is applied before it is logged changes the tree that Views read. No
// View sees the change before the sync.
func TestPageGroupIsShownWhenSynced(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true})
	put(t, e, "k", "0")
	require.NoError(t, e.Checkpoint())
	groups, looked := e.store.Counters().PageGroups, 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			looked++
			for _, o := range []TxOptions{{ReadOnly: true}, {}} {
				tx := begin(t, e, o)
				require.Equal(t, "0", get(t, tx, "k"))
				require.NoError(t, tx.Rollback())
			}
		}
		return nil
	})
	put(t, e, "k", "1")
	mem.OnOp(nil)
	require.Equal(t, groups+1, e.store.Counters().PageGroups)
	require.Positive(t, looked)
	v, _, err := e.GetCopy([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, "1", string(v))
	require.NoError(t, e.Close())
}

// TestWriteBackStartsBeforeTheMerge: the device starts to write a record group, and all of it, before its batch is
// published and merged.
func TestWriteBackStartsBeforeTheMerge(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, Options{Manual: true})
	put(t, e, "k", "0")
	require.NoError(t, e.store.Reserve(1000, false)) // growing would write and sync too
	e.store.Release(1000)
	before := e.marks.applied.Load()
	var ops []vfs.Op
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpWriteOut {
			require.Equal(t, before, e.marks.applied.Load())
		}
		ops = append(ops, op)
		return nil
	})
	tx, err := e.Begin(TxOptions{})
	require.NoError(t, err)
	for i := range 3 * pageGroupOps {
		require.NoError(t, tx.Put(fmt.Appendf(nil, "%05d", i), []byte("value")))
	}
	require.NoError(t, tx.Commit())
	mem.OnOp(nil)
	require.Len(t, ops, 3)
	require.Contains(t, []vfs.Kind{vfs.OpWrite, vfs.OpWriteVec}, ops[0].Kind)
	require.Equal(t, vfs.Op{Kind: vfs.OpWriteOut, Name: ops[0].Name, Off: ops[0].Off, Len: ops[0].Len, Index: ops[1].Index}, ops[1])
	require.Equal(t, vfs.OpDatasync, ops[2].Kind)
	require.NoError(t, e.Close())
}

// TestSeenIsShown: an update transaction wrote nothing, and saw a batch that was published but not yet visible to
// Views. It does not return before Views see the batch.
func TestSeenIsShown(t *testing.T) {
	e := newEngine(t, Options{Durability: Durable, Manual: true})
	require.NoError(t, e.WriteOne([]byte("key"), []byte("value"), false))
	release := e.HoldToken()
	seq := e.marks.applied.Load() + 1
	e.marks.show(seq) // as after the sync of the batch's group
	tx := begin(t, e, TxOptions{})
	require.Equal(t, seq, tx.Snapshot())
	returned := make(chan error, 1)
	go func() { returned <- tx.Commit() }()
	time.Sleep(100 * time.Millisecond)
	early := len(returned)
	e.log.noteLogged(seq)
	release()
	require.NoError(t, <-returned)
	require.Zero(t, early, "it returned before views see what it saw")
	require.GreaterOrEqual(t, e.marks.durable.Load(), seq)
}
