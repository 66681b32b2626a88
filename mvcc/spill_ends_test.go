package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// fill puts records into tx until part of its write set has left memory, among them long keys and values.
func fill(t *testing.T, tx *Tx, prefix string, n int) {
	t.Helper()
	for i := range n {
		key, value := fmt.Appendf(nil, "%s%05d", prefix, i), bytes.Repeat([]byte{byte(i)}, 40)
		switch i % 100 {
		case 7:
			value = bytes.Repeat([]byte{byte(i)}, 5000)
		case 8:
			key = append(key, bytes.Repeat([]byte{'k'}, 1200)...)
		case 9:
			require.NoError(t, tx.Delete(append(key, bytes.Repeat([]byte{'d'}, 1200)...)))
		}
		require.NoError(t, tx.Put(key, value))
	}
	require.NoError(t, tx.Put([]byte(prefix+"large"), bytes.Repeat([]byte("large"), 60<<10)))
	require.NotNil(t, tx.set.Spilled())
}

// privateSegments counts the segments outside of the log's chain. In these tests no committed value needs any.
func privateSegments(e *Engine) (n int) {
	for _, g := range e.store.Segments() {
		if g.State == logstore.Values {
			n++
		}
	}
	return n
}

// TestSpillGivesBack: a transaction that does not commit, for whatever reason, frees all its private segments and
// reservations.
func TestSpillGivesBack(t *testing.T) {
	inTurn(t)
	opts := spilling(Durable)
	opts.Store.MaxFileSize = 24 << 20
	e := newEngine(t, opts)
	put(t, e, "contended", "0")
	require.NoError(t, e.Checkpoint())
	ends := map[string]func(tx *Tx){
		"rolled back":              func(tx *Tx) { require.NoError(t, tx.Rollback()) },
		"with all of it in layers": func(tx *Tx) { require.NoError(t, tx.spill(true)); require.NoError(t, tx.Rollback()) },
		"lost": func(tx *Tx) {
			_, _, err := tx.Get([]byte("contended"))
			require.NoError(t, err)
			require.NoError(t, tx.Put([]byte("contended"), nil))
			put(t, e, "contended", "1")
			require.ErrorIs(t, tx.Commit(), ErrConflict)
		},
		"full": func(tx *Tx) {
			var err error
			for i := 0; err == nil && i < 1<<20; i++ {
				err = tx.Put(fmt.Appendf(nil, "full%09d", i), bytes.Repeat([]byte{1}, 1000))
			}
			require.ErrorIs(t, err, logstore.ErrFull)
			require.ErrorIs(t, tx.Commit(), logstore.ErrFull)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			if name == "lost" { // the commit of the winner takes room
				defer func() { require.NoError(t, e.Checkpoint()) }()
			}
			require.NoError(t, e.Checkpoint())
			require.NoError(t, e.Checkpoint())
			before := e.store.SpaceStats()
			tx := begin(t, e, TxOptions{})
			fill(t, tx, "a", 3000)
			require.NotZero(t, privateSegments(e))
			end(tx)
			require.Zero(t, privateSegments(e))
			if name != "lost" { // in this case the live bytes include the commit of the winner
				require.Equal(t, before.LiveBytes, e.store.SpaceStats().LiveBytes)
			}
			require.NoError(t, e.Checkpoint())
			require.Equal(t, before.ReservedBytes, e.store.SpaceStats().ReservedBytes)
			require.Zero(t, e.tree.sets.budget.Bytes())
			require.NoError(t, e.Check(context.Background()))
			put(t, e, "after", "works")
		})
	}
}

// TestSpillReuse: the room of committed layers is reused, so that repeating the same transaction does not make the
// file grow.
func TestSpillReuse(t *testing.T) {
	e := newEngine(t, spilling(Durable))
	var size int64
	for round := range 12 {
		tx := begin(t, e, TxOptions{})
		fill(t, tx, "a", 2000)
		require.NoError(t, tx.Commit())
		require.NoError(t, e.Checkpoint())
		require.NoError(t, e.Checkpoint())
		if round == 5 {
			size = e.store.SpaceStats().FileBytes
		}
	}
	require.LessOrEqual(t, e.store.SpaceStats().FileBytes, size)
}

// TestSpillConflicts: spilled write sets cause conflicts, and lose to them, as others do.
func TestSpillConflicts(t *testing.T) {
	e := newEngine(t, spilling(Durable))
	read := func(tx *Tx) {
		_, _, err := tx.Get([]byte("unrelated"))
		require.NoError(t, err)
	}
	key := []byte("a01234")

	small, large := begin(t, e, TxOptions{}), begin(t, e, TxOptions{})
	read(small)
	fill(t, large, "a", 3000)
	require.NoError(t, small.Put(key, nil))
	require.NoError(t, large.Commit())
	require.ErrorIs(t, small.Commit(), ErrConflict, "a small one after a large one")

	small, large = begin(t, e, TxOptions{}), begin(t, e, TxOptions{})
	read(large)
	fill(t, large, "a", 3000)
	require.NoError(t, small.Put(key, nil))
	require.NoError(t, small.Commit())
	require.ErrorIs(t, large.Commit(), ErrConflict, "a large one after a small one")

	one, other := begin(t, e, TxOptions{}), begin(t, e, TxOptions{})
	read(one)
	read(other)
	fill(t, one, "b", 3000)
	fill(t, other, "c", 3000)
	require.False(t, one.set.Intersects(other.set))
	require.False(t, other.set.Intersects(one.set))
	require.False(t, one.set.Overlaps([]byte("c"), nil))
	require.True(t, one.set.Overlaps([]byte("b01"), []byte("b02")))
	require.False(t, one.set.Overlaps([]byte("b00010\x00"), []byte("b00011")))
	require.NoError(t, other.Rollback())
	require.NoError(t, one.Commit())

	one, other = begin(t, e, TxOptions{}), begin(t, e, TxOptions{})
	read(one)
	read(other)
	fill(t, one, "b", 3000)
	fill(t, other, "c", 3000)
	require.NoError(t, other.Put([]byte("b00001"), nil))
	require.NoError(t, one.Commit())
	require.ErrorIs(t, other.Commit(), ErrConflict, "two large ones with a key in common")

	reader, large := begin(t, e, TxOptions{Serializable: true}), begin(t, e, TxOptions{})
	c := reader.Cursor()
	require.True(t, c.Seek([]byte("b00010")))
	require.True(t, c.Next())
	require.NoError(t, reader.Put([]byte("z"), nil))
	fill(t, large, "b0001", 1000) // keys b000100000 and so on: within the range
	require.NoError(t, large.Commit())
	require.ErrorIs(t, reader.Commit(), ErrConflict, "a range that a large one wrote into")
}

// TestSpillWithOthers: large transactions commit while many small ones do, and all succeed in the end. The final value
// of each key is that of its last writer.
func TestSpillWithOthers(t *testing.T) {
	opts := spilling(Durable)
	opts.Manual = false
	e := newEngine(t, opts)
	const rounds, workers = 6, 4
	done := make(chan error, workers+2)
	for w := range workers {
		go func() {
			for i := range 150 {
				err := persist(e, TxOptions{}, func(tx *Tx) error {
					key := fmt.Appendf(nil, "counter%d", w)
					v, _, err := tx.Get(key)
					if err != nil {
						return err
					}
					return tx.Put(key, append(bytes.Clone(v), byte(i)))
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for l := range 2 {
		go func() {
			for r := range rounds {
				err := persist(e, TxOptions{Serializable: r%2 == 0}, func(tx *Tx) error {
					if _, err := tx.Has(fmt.Appendf(nil, "%d-00000", l)); err != nil {
						return err
					}
					for i := range 1500 {
						if err := tx.Put(fmt.Appendf(nil, "%d-%05d", l, i), fmt.Appendf(nil, "round %d of %d, and more", r, l)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range workers + 2 {
		require.NoError(t, <-done)
	}
	tx := begin(t, e, TxOptions{ReadOnly: true})
	defer tx.Rollback()
	for w := range workers {
		require.Len(t, get(t, tx, fmt.Sprintf("counter%d", w)), 150)
	}
	for l := range 2 {
		for i := range 1500 {
			require.Equal(t, fmt.Sprintf("round %d of %d, and more", rounds-1, l), get(t, tx, fmt.Sprintf("%d-%05d", l, i)))
		}
	}
}
