package mvcc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
	"flashdbm/logstore/vfs"
)

// putMany puts the given keys and enough others to make the commit one that is applied in pieces.
func putMany(t *testing.T, tx *Tx, n int, value string, others ...string) {
	t.Helper()
	for i := range n {
		require.NoError(t, tx.Put(fmt.Appendf(nil, "many%05d", i), []byte(value)))
	}
	for _, key := range others {
		require.NoError(t, tx.Put([]byte(key), []byte(value)))
	}
	require.True(t, tx.heavy(), "not large: nothing is tested")
}

// largeKinds returns options under which a commit of putMany is large, with layers and without.
func largeKinds() map[string]Options {
	layers, memory := spilling(Durable), spilling(Durable)
	memory.Shares.WriteSets = 64 << 20
	return map[string]Options{"in layers": layers, "in memory": memory}
}

// TestLargeCommitsLeaveTheList: a large commit causes conflicts also after it has left the commit list, through the
// table of last writes.
func TestLargeCommitsLeaveTheList(t *testing.T) {
	for name, opts := range largeKinds() {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, opts)
			small := begin(t, e, TxOptions{})
			get(t, small, "unrelated")
			require.NoError(t, small.Put([]byte("many00777"), nil))
			large := begin(t, e, TxOptions{})
			putMany(t, large, 2000, "value")
			require.Equal(t, name == "in layers", large.set.Spilled() != nil)
			require.NoError(t, large.Commit())
			for range 3 { // the newest commit stays in the list
				put(t, e, "other", "")
			}
			require.ErrorIs(t, small.Commit(), ErrConflict)
		})
	}
}

// TestLargeCommitLooksAgain: while a large transaction is checked for conflicts, other commits are not missed. See
// TestLostPushLooksAgain.
func TestLargeCommitLooksAgain(t *testing.T) {
	const many = 5_000
	opts := spilling(Buffered)
	opts.Shares.WriteSets = 64 << 20
	e := newEngine(t, opts)
	fill := begin(t, e, TxOptions{})
	putMany(t, fill, many, "")
	require.NoError(t, fill.Commit())
	lost, won := 0, 0
	rounds := 40
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		put(t, e, "key", "old")
		tx := begin(t, e, TxOptions{Serializable: true})
		require.Equal(t, "old", get(t, tx, "key"))
		for i := range many {
			get(t, tx, fmt.Sprintf("many%05d", i))
		}
		putMany(t, tx, 200, "more", "key")
		put(t, e, "other", "") // so that there is something to compare
		end := make(chan error, 1)
		go func() { end <- tx.Commit() }()
		time.Sleep(time.Duration(round%10) * 300 * time.Microsecond)
		put(t, e, "key", "new")
		if err := <-end; err != nil {
			require.ErrorIs(t, err, ErrConflict)
			lost++
		} else {
			won++
		}
		now := begin(t, e, TxOptions{})
		require.Equal(t, "new", get(t, now, "key"))
		require.NoError(t, now.Rollback())
	}
	t.Logf("lost %d times, won %d times", lost, won)
}

// TestLargeCommitIsSeenWhole: no transaction sees part of a large commit at any moment.
func TestLargeCommitIsSeenWhole(t *testing.T) {
	for name, opts := range largeKinds() {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			opts.Durability = WriteThrough // so that what is applied is published
			opts.Shares.Batch, opts.StepPages = 16<<10, 2
			e := openOn(t, mem, opts)
			tx := begin(t, e, TxOptions{})
			putMany(t, tx, 3000, "old")
			require.NoError(t, tx.Commit())

			look := func() string {
				now := begin(t, e, TxOptions{ReadOnly: true})
				defer now.Rollback()
				first := get(t, now, "many00000")
				for i := range 30 {
					require.Equal(t, first, get(t, now, fmt.Sprintf("many%05d", i*100+99)))
				}
				return first
			}
			tx = begin(t, e, TxOptions{})
			putMany(t, tx, 3000, "new")
			looks, busy := 0, false
			mem.OnOp(func(op vfs.Op) error {
				if (op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec) && !busy {
					busy = true
					if look() == "old" {
						looks++
					}
					busy = false
				}
				return nil
			})
			require.NoError(t, tx.Commit())
			mem.OnOp(nil)
			require.Greater(t, looks, 10, "looks in the middle of it")
			require.Equal(t, "new", look())
			require.NoError(t, e.Close())
		})
	}
}

// TestSlicesOfLayersStay: slices of layers that a transaction has returned stay unchanged until it ends, even if the
// layers are merged into others and other transactions write large values meanwhile.
func TestSlicesOfLayersStay(t *testing.T) {
	e := newEngine(t, spilling(Durable))
	tx := begin(t, e, TxOptions{})
	type held struct{ slice, copied []byte }
	var slices []held
	layers, given, merged := 0, false, false
	for i := 0; !merged; i++ {
		require.Less(t, i, 100_000, "nothing was merged")
		value := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 20+i%30)
		if i%50 == 0 {
			value = bytes.Repeat(value, 40)
		}
		key := fmt.Appendf(nil, "%06d", i)
		require.NoError(t, tx.Put(key, value))
		if j := i - 1000; j >= 0 && j%10 == 0 {
			at := fmt.Appendf(nil, "%06d", j)
			v, ok, err := tx.Get(at)
			require.NoError(t, err)
			require.True(t, ok)
			slices = append(slices, held{v, bytes.Clone(v)})
			if i > 3000 { // before that there are only copies
				c := tx.Cursor()
				require.True(t, c.Seek(at))
				v, err := c.Value()
				require.NoError(t, err)
				slices = append(slices, held{v, bytes.Clone(v)}, held{c.Key(), at})
				given = true
			}
		}
		if s := tx.set.Spilled(); s != nil {
			merged = given && len(s.Layers()) < layers
			layers = len(s.Layers())
		}
	}
	for i := range 20 {
		put(t, e, fmt.Sprint("large", i), string(bytes.Repeat([]byte{0xAA}, 100_000)))
	}
	for i, h := range slices {
		require.True(t, bytes.Equal(h.copied, h.slice), "slice %d of %d", i, len(slices))
	}
	if err := tx.Commit(); !errors.Is(err, ErrConflict) { // two of these keys may share a slot of the table of last writes
		require.NoError(t, err)
	}
}

// TestLargeSerializableCommit: before a large commit compares what it has read, the commits just before it must be in
// the tree. The large commit has completed them itself and holds the token, so nobody else can merge them.
func TestLargeSerializableCommit(t *testing.T) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			opts := spilling(d)
			opts.Shares.WriteSets, opts.Shares.Batch = 64<<10, 32<<20
			e := newEngine(t, opts)
			large := begin(t, e, TxOptions{Serializable: true})
			get(t, large, "unrelated")
			value := strings.Repeat("value", 200)
			putMany(t, large, 70, value)
			slots := map[*atomic.Uint64]bool{} // keys that share a slot would seem to conflict
			for i := range 70 {
				slots[e.committer.resolver.writes.Of(writeset.HashKey(fmt.Appendf(nil, "many%05d", i)))] = true
			}
			require.NoError(t, large.spill(true))
			require.NoError(t, e.store.SyncPrivate())
			held, err := e.admission.admit(large)
			require.NoError(t, err)
			small := begin(t, e, TxOptions{})
			for i := 0; small.Written() <= deferOps; i++ { // a batch that need not be merged at once
				if key := fmt.Appendf(nil, "small%05d", i); !slots[e.committer.resolver.writes.Of(writeset.HashKey(key))] {
					require.NoError(t, small.Put(key, nil))
				}
			}
			require.False(t, small.heavy())
			release := e.HoldToken()
			end := make(chan error, 1)
			go func() { end <- small.Commit() }()
			require.Eventually(t, func() bool { return e.Pushed() == 1 }, patience, time.Millisecond)
			n := &commitNode{}
			n.Value.set, n.Value.tx, large.held = large.set, large, held
			within(t, func() {
				e.checkpoints.mu.Lock()
				defer e.checkpoints.mu.Unlock()
				lost, err := e.committer.turnHeavy(large, n)
				require.Nil(t, lost)
				require.NoError(t, err)
			})
			release()
			require.NoError(t, <-end)
			require.Less(t, small.pushed.Value.seq.Load(), n.Value.seq.Load())
			large.end()
			now := begin(t, e, TxOptions{})
			require.Equal(t, value, get(t, now, "many00069"))
			require.NoError(t, now.Rollback())
		})
	}
}
