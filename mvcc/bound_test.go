package mvcc

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// A file stays within its bound however slow background work is compared with the commits.
func TestBoundBesideSlowHousekeeping(t *testing.T) {
	inTurn(t)
	const records, size = 4000, 1000
	total := 60_000
	if testing.Short() {
		total = 30_000
	}
	e := newEngine(t, Options{Store: logstore.Options{}, RedoLimit: 32 << 20, Durability: Buffered, Step: func(p StepPoint) {
		if p == StepBetween {
			time.Sleep(3 * time.Millisecond)
		}
	}})
	const bar = boundFactor*records*size + boundExtra
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, size-8)
	put := func(key int) func(tx *Tx) {
		return func(tx *Tx) { require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(key)), value)) }
	}
	commit := func(fns ...func(tx *Tx)) {
		tx := begin(t, e, TxOptions{})
		for _, fn := range fns {
			fn(tx)
		}
		require.NoError(t, tx.Commit())
	}
	for i := 0; i < records; i += 50 {
		var fns []func(*Tx)
		for j := range 50 {
			fns = append(fns, put(i+j))
		}
		commit(fns...)
	}
	most := int64(0)
	for i := 0; i < total; i += 50 {
		var fns []func(*Tx)
		for range 50 {
			fns = append(fns, put(rng.IntN(records)))
		}
		commit(fns...)
		most = max(most, e.store.SpaceStats().FileBytes)
	}
	t.Logf("at most %d KiB of %d", most>>10, bar>>10)
	require.LessOrEqual(t, most, int64(bar))
}

// Readers that hold dead pages block no commit: within a few rounds the bound is raised by what they hold. It falls
// again when they have ended.
func TestBoundGivesWayToReaders(t *testing.T) {
	inTurn(t)
	const records, size = 40_000, 1000
	e := newEngine(t, Options{RedoLimit: 32 << 20, Durability: Buffered})
	value := make([]byte, size-8)
	put := func() {
		for i := 0; i < records; i += 500 {
			tx := begin(t, e, TxOptions{})
			for j := range 500 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), value))
			}
			require.NoError(t, tx.Commit())
		}
	}
	put()
	var readers []*Tx
	begun, checkpoints := time.Now(), e.checkpoints.done.Load()
	for range 3 { // each holds what was live when it began
		readers = append(readers, begin(t, e, TxOptions{ReadOnly: true}))
		put()
	}
	checkpoints = e.checkpoints.done.Load() - checkpoints
	require.Less(t, checkpoints, uint64(200), "once raised the bound is no bar to the next commit")
	t.Logf("%d MiB beside readers after %v and %d checkpoints", e.store.SpaceStats().FileBytes>>20, time.Since(begun), checkpoints)
	for _, reader := range readers {
		require.NoError(t, reader.Rollback())
	}
	for range 3 {
		put()
	}
	require.Eventually(t, func() bool {
		put()
		raised := int64(0)
		require.NoError(t, e.tree.withMerged(func() error { raised = e.pressure.crowd.raised; return nil }))
		return raised == 0 && e.store.SpaceStats().FileBytes <= boundFactor*records*size+boundExtra
	}, time.Minute, time.Millisecond)
}

// TestRoundsRaiseTheBound: readers hold all pages that die, so rounds of background work make no room. Each round
// raises the bound instead, until the waiting commits fit. Otherwise each commit would wait for the longest time
// allowed.
func TestRoundsRaiseTheBound(t *testing.T) {
	const records, size = 10_000, 1000
	e := newEngine(t, Options{RedoLimit: 32 << 20, Durability: Buffered, FlushInterval: time.Hour})
	for held := 0; ; held++ {
		for i := 0; i < records; i += 5000 { // a commit of more than boundMost pages does not wait
			tx := begin(t, e, TxOptions{})
			for j := range 5000 {
				require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, size-8)))
			}
			require.Greater(t, e.admission.estimate(tx), int64(boundMost))
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.Checkpoint())
		if !e.pressure.roomy(1) {
			require.Positive(t, held)
			break
		}
		reader := begin(t, e, TxOptions{ReadOnly: true})
		t.Cleanup(func() { reader.Rollback() })
	}
	e.checkpoints.mu.Lock() // no other background work
	defer e.checkpoints.mu.Unlock()
	rounds, bound := 0, e.store.Bound()
	for ; !e.pressure.roomy(1); rounds++ {
		require.Less(t, rounds, boundStep)
		require.NoError(t, e.maintenance.makeWay(1))
	}
	t.Logf("%d rounds, bound %d -> %d MiB", rounds, bound>>20, e.store.Bound()>>20)
	require.Less(t, bound, e.store.Bound())
}

// beforeARound returns an engine whose file is past its bound. The test holds checkpoints.mu, as makeWay requires.
func beforeARound(t *testing.T) *Engine {
	inTurn(t)
	e := pastItsBound(t)
	e.checkpoints.mu.Lock()
	t.Cleanup(e.checkpoints.mu.Unlock)
	e.opts.Manual = false
	return e
}

// TestRoundsCleanPastTheBound: a round that makes room cleans a file even if the file is past its bound by more than
// the spare space that cleaning may use.
func TestRoundsCleanPastTheBound(t *testing.T) {
	e := beforeARound(t)
	require.NoError(t, e.tree.withMerged(func() error { e.pressure.noteBound(); return nil }))
	dead := func() int64 {
		_, dead := e.store.Victims(e.flusher.stuck, false)
		return dead * logstore.PageSize
	}
	before := dead()
	require.Greater(t, e.store.SpaceStats().FileBytes, e.store.Bound()+2*boundClean)
	require.NoError(t, e.maintenance.makeWay(1))
	require.Less(t, dead(), before-boundClean)
}

// TestRoundsMoveWhatFits: before a flush of everything dirty a round moves pages only as far as there is room to write
// them too, or boundClean bytes of them.
func TestRoundsMoveWhatFits(t *testing.T) {
	e := beforeARound(t)
	look := func(bound int64) (fits bool, past, most int64) {
		e.store.SetBound(bound)
		fits, past, most, err := e.pressure.allFitsNow(e.cleaner.emptyFor(1))
		require.NoError(t, err)
		return fits, past, most
	}
	_, _, most := look(1 << 40)
	require.Greater(t, most, e.cleaner.emptyFor(1))
	for bound := e.store.SpaceStats().FileBytes; most > boundClean/logstore.PageSize; bound -= 1 << 20 {
		var fits bool
		var past int64
		fits, past, most = look(bound)
		require.True(t, fits)
		require.Zero(t, past, "what is dirty fits")
	}
	require.EqualValues(t, boundClean/logstore.PageSize, most)
	const few = 100
	before := e.flusher.moved.Load()
	require.NoError(t, e.cleaner.cleanFor(1, few))
	moved := e.flusher.moved.Load() - before
	require.Positive(t, moved)
	require.LessOrEqual(t, int(moved), few)
}

// TestRoundsThatFindRoom: a round that finds room does not raise the bound, even if others take the room before the
// round ends.
func TestRoundsThatFindRoom(t *testing.T) {
	e := beforeARound(t)
	e.store.SetBound(1 << 40) // as if the file had become full only now
	require.True(t, e.pressure.roomy(1))
	require.NoError(t, e.maintenance.makeWay(1))
	require.False(t, e.pressure.roomy(1))
	require.Zero(t, e.pressure.crowd.raised)
}

// TestBoundIsPassedInTime: if deletes have lowered the bound and background work takes long, commits continue, a few
// at a time.
func TestBoundIsPassedInTime(t *testing.T) {
	inTurn(t)
	const records, size = 40_000, 1000
	e := newEngine(t, Options{RedoLimit: 32 << 20, Durability: Buffered, FlushInterval: time.Hour})
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	each := func(do func(tx *Tx, i int) error) {
		for i := 0; i < records; i += 4000 { // a commit of more than boundMost pages does not wait
			tx := begin(t, e, TxOptions{})
			for j := range 4000 {
				require.NoError(t, do(tx, i+j))
			}
			require.NoError(t, tx.Commit())
		}
	}
	for range 2 {
		each(func(tx *Tx, i int) error { return tx.Put(key(i), make([]byte, size-8)) })
	}
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock() // no background work
	begun := time.Now()
	each(func(tx *Tx, i int) error { return tx.Delete(key(i)) })
	deleted := time.Since(begun)
	const puts = 100
	longest, pages := time.Duration(0), int64(0)
	begun = time.Now()
	for i := range puts {
		tx, began := begin(t, e, TxOptions{}), time.Now()
		require.NoError(t, tx.Put(key(i), make([]byte, size-8)))
		pages += e.admission.estimate(tx)
		require.NoError(t, tx.Commit())
		longest = max(longest, time.Since(began))
		if longest > 4*boundWait {
			break
		}
	}
	took := time.Since(begun)
	e.checkpoints.mu.Unlock()
	t.Logf("deletes %v; %d puts of %d pages %v, longest %v; used %d MiB, bound %d", deleted, puts, pages, took, longest, e.store.SpaceStats().FileBytes>>20, e.store.Bound()>>20)
	require.Less(t, longest, 4*boundWait)
	require.Greater(t, took, time.Duration(float64(pages*logstore.PageSize)/boundRate*float64(time.Second))/2)
}

// TestBoundLineIsLeft: a commit that is cancelled while it waits in line to pass the bound leaves the line, so that no
// later commit waits because of it. The test never sleeps, so its clock does not advance and no commit passes before
// it is cancelled.
func TestBoundLineIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{Durability: Buffered, FlushInterval: time.Hour})
		put(t, e, "a", "1")
		require.NoError(t, e.Checkpoint())
		e.checkpoints.mu.Lock() // no background work
		defer e.checkpoints.mu.Unlock()
		e.store.SetBound(logstore.PageSize)
		ctx, cancel := context.WithCancel(t.Context())
		const writers = 20
		var gone sync.WaitGroup
		for i := range writers {
			tx := begin(t, e, TxOptions{})
			tx.ctx = ctx
			require.NoError(t, tx.Put([]byte{byte(i)}, make([]byte, 400<<10)))
			gone.Go(func() { require.ErrorIs(t, tx.Commit(), context.Canceled) })
		}
		line := func() time.Duration { return time.Until(time.Unix(0, e.pressure.crowd.passing.Load())) }
		for line() <= boundWait/2 && !t.Failed() { // a commit that does not wait fails the test
			runtime.Gosched()
		}
		cancel()
		gone.Wait()
		require.LessOrEqual(t, line(), time.Duration(0), "places of those who have gone are still in line")
	})
}
