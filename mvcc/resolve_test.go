package mvcc

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
)

// TestCutAfterTheTable: while a batch is entered into the table of last writes, the list still has the whole batch.
// The batch has a commit that takes long to enter, then the commit under test, then another one.
func TestCutAfterTheTable(t *testing.T) {
	const many = 30_000 // and no more, or it would be a batch of its own, see heavy
	e := newEngine(t, Options{Durability: Buffered, Manual: true, Shares: MemoryShares{Batch: 1 << 30}})
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		tx := begin(t, e, TxOptions{})
		get(t, tx, "key")
		require.NoError(t, tx.Put([]byte("key"), nil))

		first := fmt.Appendf(nil, "%d/%d", round, 0)
		entered := e.committer.resolver.writes.Of(writeset.HashKey(first))
		before := entered.Load()
		release := e.HoldToken()
		ends := make(chan error, 3)
		for i, write := range []func(tx *Tx) error{
			func(tx *Tx) error {
				for j := range many {
					if err := tx.Put(fmt.Appendf(nil, "%d/%d", round, j), nil); err != nil {
						return err
					}
				}
				return nil
			},
			func(tx *Tx) error { return tx.Put([]byte("key"), []byte("newer")) },
			func(tx *Tx) error { return tx.Put([]byte("other"), nil) },
		} {
			go func() {
				tx, err := e.Begin(TxOptions{})
				if err == nil {
					err = write(tx)
				}
				if err == nil {
					err = tx.Commit()
				}
				ends <- err
			}()
			require.Eventually(t, func() bool { return e.Pushed() == i+1 }, patience, 100*time.Microsecond)
		}
		go release()
		for entered.Load() == before {
		}
		require.ErrorIs(t, tx.Commit(), ErrConflict)
		for range cap(ends) {
			require.NoError(t, <-ends)
		}
	}
}

// TestLostPushLooksAgain: a commit that comes while a transaction is checked for conflicts is not missed. The
// transaction has read so much that the check takes long. Meanwhile another transaction puts a key that the first one
// overwrites. The put must not be lost: the first transaction either came before the put or loses.
func TestLostPushLooksAgain(t *testing.T) {
	const many = 5_000
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	fill := begin(t, e, TxOptions{})
	for i := range many {
		require.NoError(t, fill.Put(fmt.Append(nil, i), nil))
	}
	require.NoError(t, fill.Commit())
	lost, rounds := 0, 40
	if testing.Short() {
		rounds = 20
	}
	for round := range rounds {
		put(t, e, "key", "old")
		tx := begin(t, e, TxOptions{Serializable: true})
		require.Equal(t, "old", get(t, tx, "key"))
		for i := range many {
			get(t, tx, fmt.Sprint(i))
		}
		require.NoError(t, tx.Put([]byte("key"), []byte("old and more")))
		put(t, e, "other", "") // so that there is something to compare
		end := make(chan error, 1)
		go func() { end <- tx.Commit() }()
		time.Sleep(time.Duration(round%10) * 200 * time.Microsecond)
		put(t, e, "key", "new")
		if err := <-end; err != nil {
			require.ErrorIs(t, err, ErrConflict)
			lost++
		}
		now := begin(t, e, TxOptions{})
		require.Equal(t, "new", get(t, now, "key"))
		require.NoError(t, now.Rollback())
	}
	t.Logf("lost %d times of %d", lost, rounds)
}

// TestUntoldConflicts: a batch is entered into the table of last writes if another transaction may look for it there.
// A transaction that was missed in this decision loses to everything that the table lacks. A transaction that began
// later does not.
func TestUntoldConflicts(t *testing.T) {
	const many = 20
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	large := func() (seq uint64, inTable bool) {
		tx := begin(t, e, TxOptions{})
		for i := range many {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "large%d", i), nil))
		}
		require.NoError(t, tx.Commit())
		seq = e.marks.applied.Load()
		n := 0
		for i := range many {
			if e.committer.resolver.writes.Of(writeset.HashKey(fmt.Appendf(nil, "large%d", i))).Load() == seq {
				n++
			}
		}
		require.True(t, n == 0 || n == many)
		require.Equal(t, n == 0, e.committer.resolver.writes.Untold() == seq)
		return seq, n > 0
	}
	change := func(key string) *Tx {
		tx := begin(t, e, TxOptions{})
		get(t, tx, key)
		require.NoError(t, tx.Put([]byte(key), nil))
		return tx
	}

	_, inTable := large()
	require.False(t, inTable, "nobody is there to look")

	same, other := change("large1"), change("other")
	reader := begin(t, e, TxOptions{ReadOnly: true})
	_, inTable = large()
	require.True(t, inTable)
	require.NoError(t, other.Commit(), "no conflict is invented")
	require.ErrorIs(t, same.Commit(), ErrConflict)
	_, inTable = large()
	require.True(t, inTable, "a reader may be a writer")
	require.NoError(t, reader.Rollback())

	waiting := change("large1")
	e.admission.unpin(waiting)
	_, inTable = large()
	require.True(t, inTable, "someone waits for admission")
	require.NoError(t, e.admission.pin(waiting))
	require.ErrorIs(t, waiting.Commit(), ErrConflict)

	missed := change("large1")
	e.admission.unpin(missed)
	e.readers.unpinned.leave() // so the next batch does not count it
	seq, inTable := large()
	require.False(t, inTable)
	e.readers.unpinned.enter()
	require.NoError(t, e.admission.pin(missed))
	put(t, e, "elsewhere", "") // afterwards the list no longer has the large batch
	require.Greater(t, seq, missed.Snapshot())
	require.ErrorIs(t, missed.Commit(), ErrConflict)

	later := change("large1")
	require.NoError(t, later.Commit())
}

// TestToldLate: a transaction begins after the registry was read and before the batch ends. The batch is in the table
// of last writes for it, and it loses to no other commit.
func TestToldLate(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	put(t, e, "k", "")
	before := e.committer.resolver.writes.Untold()
	release := e.HoldToken()
	n := &commitNode{}
	n.Value.set = &writeset.Set{}
	n.Value.set.Put([]byte("k"), nil)
	e.committer.batch.nodes = append(e.committer.batch.nodes, n)
	committer := begin(t, e, TxOptions{})
	n.Value.tx = committer
	seq := e.marks.applied.Load() + 1
	last := e.committer.resolver.writes.Of(writeset.HashKey([]byte("k")))
	e.committer.resolver.tell(seq, e.committer.batch.nodes)
	require.Equal(t, seq, e.committer.resolver.writes.Untold())
	require.Less(t, last.Load(), seq)
	require.True(t, e.committer.resolver.tellLate(seq, e.committer.batch.nodes))
	require.Equal(t, seq, e.committer.resolver.writes.Untold(), "nobody came")
	late := begin(t, e, TxOptions{})
	require.False(t, e.committer.resolver.tellLate(seq, e.committer.batch.nodes))
	require.Equal(t, before, e.committer.resolver.writes.Untold())
	require.Equal(t, seq, last.Load())
	e.committer.batch.nodes = e.committer.batch.nodes[:0]
	release()
	require.NoError(t, late.Rollback())
	require.NoError(t, committer.Rollback())
}

// TestToldAtAnyTime: a batch is first only noted as missing from the table, and then entered into the table. A
// transaction that conflicts with the batch loses at every moment from the note on, also while the note is replaced.
func TestToldAtAnyTime(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	put(t, e, "k", "")
	release := e.HoldToken()
	n := &commitNode{}
	n.Value.set = &writeset.Set{}
	n.Value.set.Put([]byte("k"), nil)
	e.committer.batch.nodes = append(e.committer.batch.nodes, n)
	beaten := begin(t, e, TxOptions{CheckWrites: true})
	n.Value.tx = beaten
	require.NoError(t, beaten.Put([]byte("k"), nil))
	for i := range 100 { // makes the search take longer
		require.NoError(t, beaten.Put(fmt.Appendf(nil, "other%d", i), nil))
	}
	before, seq, last := e.committer.resolver.writes.Untold(), beaten.Snapshot()+1, e.committer.resolver.writes.Of(writeset.HashKey([]byte("k")))

	const rounds = 5_000
	var noted, told atomic.Int64 // numbers of rounds
	var looks, missed atomic.Int64
	looked := make(chan struct{})
	go func() {
		for round := int64(1); round <= rounds; round++ {
			for noted.Load() < round {
				runtime.Gosched()
			}
			for done := false; !done; {
				done = told.Load() == round
				if e.committer.resolver.conflict(beaten, nil) == nil {
					missed.Add(1)
				}
				if looks.Add(1)%64 == 0 {
					runtime.Gosched()
				}
			}
			looked <- struct{}{}
		}
	}()
	for round := int64(1); round <= rounds; round++ {
		e.committer.resolver.tell(seq, e.committer.batch.nodes)
		require.Equal(t, seq, e.committer.resolver.writes.Untold())
		from := looks.Load()
		noted.Store(round)
		for looks.Load() == from {
			runtime.Gosched()
		}
		e.readers.unpinned.enter() // as if a transaction had come
		require.False(t, e.committer.resolver.tellLate(seq, e.committer.batch.nodes))
		require.Equal(t, before, e.committer.resolver.writes.Untold())
		told.Store(round)
		<-looked
		e.readers.unpinned.leave()
		last.Store(0)
	}
	require.Zero(t, missed.Load())
	e.committer.batch.nodes = e.committer.batch.nodes[:0]
	release()
	require.NoError(t, beaten.Rollback())
}
