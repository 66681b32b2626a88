package mvcc

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
)

// If another goroutine has completed a commit, and its committer takes the token nevertheless, no signal must be left
// in its channel. Otherwise the next commit that uses the channel would return before it is completed.
func TestCompletedByAnother(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.Put([]byte("a"), []byte("1")))
	n := &commitNode{}
	n.Value.set, n.Value.tx = tx.set, tx
	tx.kept.wakeChan()
	require.NoError(t, e.committer.resolver.resolve(tx, n))
	put(t, e, "b", "2") // takes the token and completes both
	require.Len(t, tx.kept.wake, 1)
	e.committer.awaitOutcome(n)
	require.NoError(t, tx.err)
	require.Empty(t, tx.kept.wake)
	tx.pushed = n
	tx.end()
}

// TestToken: committers and background work pass the token to each other. One goroutine has it at a time, none waits
// for ever, and neither kind starves the other.
func TestToken(t *testing.T) {
	for _, c := range []struct {
		durability                    Durability
		committers, background, turns int
	}{{Buffered, 1, 1, 2000}, {Buffered, 8, 1, 2000}, {Buffered, 1, 8, 2000}, {Buffered, 8, 8, 2000}, {Buffered, 32, 3, 2000}, {Durable, 8, 1, 1000}, {Durable, 8, 8, 500}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			e := newEngine(t, Options{Durability: c.durability, Manual: true, Thresholds: Thresholds{SyncBeside: true}})
			turns := c.turns
			if testing.Short() {
				turns /= 6
			}
			owned := 0 // not atomic, so that the race detector notices two holders
			var ends atomic.Int32
			var commits, takes atomic.Int64
			within(t, func() {
				together(c.committers+c.background, func(g int) {
					defer ends.Add(1)
					for i := 0; ends.Load() == 0 && i < turns || i < turns/4; i++ {
						if g < c.committers {
							put(t, e, fmt.Sprint(g), fmt.Sprint(i))
							commits.Add(1)
							continue
						}
						if err := e.tree.withMerged(func() error {
							owned++
							return nil
						}); err != nil {
							t.Error(err)
						}
						takes.Add(1)
					}
				})
			})
			require.EqualValues(t, takes.Load(), owned)
			require.False(t, e.token.held.Load())
			require.Zero(t, e.token.waiting.Load())
			require.Same(t, e.committer.resolver.list.Head(), e.committer.resolver.list.Drained())
		})
	}
}

// TestTokenIsNotLost lets two goroutines take the token at about the same time, again and again. Nobody comes after
// them who would complete a commit that they have missed.
func TestTokenIsNotLost(t *testing.T) {
	for _, durability := range []Durability{Buffered, Durable} {
		testTokenIsNotLost(t, durability)
	}
}

func testTokenIsNotLost(t *testing.T, durability Durability) {
	e := newEngine(t, Options{Durability: durability, Manual: true, Thresholds: Thresholds{SyncBeside: true}})
	commit := func() { put(t, e, "k", "v") }
	background := func() { e.tree.withMerged(func() error { return nil }) }
	rounds := 10_000
	if testing.Short() {
		rounds = 2000
	}
	if durability == Durable {
		rounds /= 4
	}
	for _, pair := range [][2]func(){{commit, commit}, {commit, background}, {background, background}} {
		var arrived atomic.Int32
		within(t, func() {
			together(2, func(g int) {
				for round := range rounds {
					arrived.Add(1)
					for arrived.Load() < int32(2*(round+1)) {
						runtime.Gosched()
					}
					pair[g]()
				}
			})
		})
	}
}

// TestTokenTurns: waiting background work gets the token next, and then a waiting committer.
func TestTokenTurns(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	release := e.HoldToken()
	var seen []uint64 // applied, as written by the token holder
	var done atomic.Int32
	for range 3 {
		go func() {
			e.tree.withMerged(func() error {
				seen = append(seen, e.marks.applied.Load())
				return nil
			})
			done.Add(1)
		}()
	}
	require.Eventually(t, func() bool { return e.token.waiting.Load() == 3 }, patience, time.Millisecond)
	go func() {
		put(t, e, "k", "v")
		done.Add(1)
	}()
	require.Eventually(t, func() bool { return e.Pushed() == 1 }, patience, time.Millisecond)
	applied := e.marks.applied.Load()
	release() // as background work does; then it is the committer's turn
	require.Eventually(t, func() bool { return done.Load() == 4 }, patience, time.Millisecond)
	require.Equal(t, []uint64{applied + 1, applied + 1, applied + 1}, seen)
}

// TestNewHolderRuns: background work that gets the token from a committer runs before the committer continues, also on
// one processor. The runtime lets the committer go first now and then.
func TestNewHolderRuns(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Manual: true})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := 0
	for range 100 {
		e.token.take()
		var ran atomic.Bool
		done := make(chan bool)
		go func() {
			defer close(done)
			e.token.take()
			ran.Store(true)
			e.token.pass(true)
		}()
		for e.token.waiting.Load() == 0 {
			runtime.Gosched()
		}
		e.token.pass(false)
		if ran.Load() {
			first++
		}
		<-done
	}
	require.Greater(t, first, 75)
}

// TestBatches: commits that wait together are completed together, with one Seq, one group and one sync.
func TestBatches(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	put(t, e, "k", "v")
	require.NoError(t, e.store.Reserve(1000, false)) // growing would sync too
	e.store.Release(1000)
	release := e.HoldToken()
	before, seq := e.store.Counters(), e.marks.applied.Load()
	var done atomic.Int32
	const n = 20
	for g := range n {
		go func() {
			put(t, e, fmt.Sprint(g%10), fmt.Sprint(g))
			done.Add(1)
		}()
	}
	require.Eventually(t, func() bool { return e.Pushed() == n }, patience, time.Millisecond)
	release()
	require.Eventually(t, func() bool { return done.Load() == n }, patience, time.Millisecond)
	after := e.store.Counters()
	require.Equal(t, seq+1, e.marks.applied.Load())
	require.EqualValues(t, 1, after.RecordGroups+after.PageGroups-before.RecordGroups-before.PageGroups)
	require.EqualValues(t, 1, after.Syncs-before.Syncs)
	n1, err := e.Len()
	require.NoError(t, err)
	require.EqualValues(t, 11, n1)
}

// TestLastOfBatchCounts: if a batch writes a key several times, the write that was pushed last stays.
func TestLastOfBatchCounts(t *testing.T) {
	e := newEngine(t, Options{Manual: true})
	release := e.HoldToken()
	var done atomic.Int32
	const n = 5
	for i := range n {
		go func() {
			put(t, e, "k", fmt.Sprint(i))
			done.Add(1)
		}()
		require.Eventually(t, func() bool { return e.Pushed() == i+1 }, patience, 100*time.Microsecond)
	}
	release()
	require.Eventually(t, func() bool { return done.Load() == n }, patience, time.Millisecond)
	v, _, err := e.GetCopy([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(n-1), string(v))
}

// TestTableBeforeApplied: a transaction that reads at a Seq finds everything up to that Seq in the table of last
// writes, or a note that something is missing there. The tree has all that it must see.
func TestTableBeforeApplied(t *testing.T) {
	for durability, rounds := range map[Durability]int{Buffered: 20_000, WriteThrough: 4_000, Durable: 4_000} { // Durable: in page groups
		e := newEngine(t, Options{Durability: durability, Manual: true})
		put(t, e, "k", "0")
		first := e.marks.applied.Load()
		last := e.committer.resolver.writes.Of(writeset.HashKey([]byte("k")))
		var stop atomic.Bool
		var watched sync.WaitGroup
		watched.Go(func() {
			for !stop.Load() {
				applied := e.marks.applied.Load()
				untold := e.committer.resolver.writes.Untold() // read first, because a note is removed once the table has the batch
				if untold < applied && last.Load() < applied {
					t.Error("applied has moved first")
					return
				}
			}
		})
		watched.Go(func() {
			for !stop.Load() {
				tx, err := e.Begin(TxOptions{})
				if !assert.NoError(t, err) {
					return
				}
				v, _, err := tx.Get([]byte("k"))
				same := assert.NoError(t, err) && assert.Equal(t, fmt.Sprint(tx.Snapshot()-first), string(v))
				tx.Rollback()
				if !same {
					return
				}
			}
		})
		if testing.Short() { // the race detector needs few rounds
			rounds /= 8
		}
		for i := range rounds { // each batch writes the key
			put(t, e, "k", fmt.Sprint(i+1))
		}
		stop.Store(true)
		watched.Wait()
	}
}

// TestWatermarks: durable never passes applied, and the Seq at which a View reads never decreases.
func TestWatermarks(t *testing.T) {
	e := newEngine(t, tiny(Durable))
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		var last uint64
		for {
			select {
			case <-stop:
				return
			default:
			}
			durable := e.marks.durable.Load()
			if applied := e.marks.applied.Load(); durable > applied || durable < last {
				t.Errorf("durable %d after %d, applied %d", durable, last, applied)
				return
			}
			last = durable
		}
	}()
	rounds := 200
	if testing.Short() {
		rounds = 50
	}
	together(6, func(g int) {
		for i := range rounds {
			if g == 0 {
				if err := e.Sync(); err != nil {
					t.Error(err)
				}
			}
			tx := begin(t, e, TxOptions{})
			for j := range 60 { // enough that some are applied while they are synced
				tx.Put(fmt.Appendf(nil, "%d-%d", g, (i+j)%100), nil)
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			// What a transaction has seen stays visible to later ones.
			view := begin(t, e, TxOptions{ReadOnly: true})
			update := begin(t, e, TxOptions{})
			if update.Snapshot() < view.Snapshot() {
				t.Errorf("an update at %d after a view at %d", update.Snapshot(), view.Snapshot())
			}
			update.Rollback()
			view.Rollback()
		}
	})
	close(stop)
	<-watched
}
