package override

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Readers begin, read and end while the token holder commits, flushes, folds, moves pages and reclaims, and
// while images and the table of a checkpoint are encoded without the token. Each reader sees its own state.
func TestConcurrentReaders(t *testing.T) {
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, err := newModel(r, newRecordMaker(r), seed%2 == 0)
		require.NoError(t, err)
		m.ops = 8
		err = m.withReaders(3, steps(150, 40))
		require.NoError(t, err)
		require.NoError(t, m.settle())
		m.release()
	}
}

// The table of a checkpoint is encoded while commits add names. It is the table as of the freeze.
func TestEncodeTableBesideCommits(t *testing.T) {
	s := newHighScript(t)
	s.flushAll()
	for round := range 20 {
		s.p.Freeze()
		want := s.p.EncodeTable()
		var got []byte
		var beside sync.WaitGroup
		beside.Go(func() { got = s.p.EncodeTable() })
		s.run(false, round%2 == 0, span(10, 90)...)
		beside.Wait()
		s.p.Thaw()
		for _, b := range [][]byte{want, got} {
			clear(b[8:16]) // the counter may have advanced
		}
		require.Equal(t, want[:tableFixed], got[:tableFixed])
		require.ElementsMatch(t, slices.Collect(slices.Chunk(want[tableFixed:], tableEntry)), slices.Collect(slices.Chunk(got[tableFixed:], tableEntry)))
	}
}

// steps returns how many steps a test takes, fewer with -short.
func steps(long, short int) int {
	if testing.Short() {
		return short
	}
	return long
}

// withReaders takes rounds of steps while readers read.
func (m *model) withReaders(readers, rounds int) error {
	var done atomic.Bool
	var all sync.WaitGroup
	errs := make(chan error, readers)
	for i := range readers {
		d := m.reading
		d.records.value = nil
		r := rand.New(rand.NewPCG(uint64(i), 4))
		all.Go(func() { errs <- m.readUntil(&done, &d, r) })
	}
	err := m.rounds(rounds)
	done.Store(true)
	all.Wait()
	for range readers {
		if rerr := <-errs; err == nil {
			err = rerr
		}
	}
	return err
}

// readUntil reads the whole tree at a snapshot, then some records again, and repeats this until it is stopped.
func (m *model) readUntil(done *atomic.Bool, d *reading, r *rand.Rand) error {
	for !done.Load() {
		slot := m.registry.Acquire(m.view)
		snap, st := d.p.At(slot.Seq()), m.state(slot.Seq())
		var held []heldCell
		err := d.readAll(snap, st, func(h heldCell) { held = append(held, h) })
		for range r.IntN(3) {
			for _, h := range held {
				if err == nil {
					err = d.checkCell(snap, h.cell, h.key, h.version)
				}
			}
		}
		slot.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *model) rounds(n int) error {
	for range n {
		if err := m.commit(); err != nil {
			return err
		}
		// Only flushes release the token in the middle: a commit may run during those steps of a flush that need no
		// token.
		apart := func() {}
		switch {
		case m.flush != nil && !m.flush.encoded && !m.flush.written:
			m.flush.encoded, apart = true, m.flush.f.Encode
		case m.flush == nil && m.check == nil && m.r.IntN(4) == 0:
			m.p.Freeze()
			apart = func() { m.check = m.s.BeginCheckpoint(m.p.EncodeTable()) }
		}
		var beside sync.WaitGroup
		beside.Go(apart)
		err := m.commit()
		beside.Wait()
		for _, step := range []func(*model) error{(*model).flushStep, (*model).fold, (*model).touch, (*model).checkpointStep, (*model).sync, (*model).reclaim} {
			if err == nil && m.r.IntN(3) > 0 {
				err = step(m)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
