package lockfree

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests run the protocol described at List, with a side table, and check
// that of two transactions with a common key the later one began after the
// earlier one was applied: first committer wins.

const resolveKeys = 6

// txn is a transaction as a node carries it: a few keys, written before Push.
type txn struct {
	keys     []int
	snapshot uint64
	seq      atomic.Uint64 // 0 until the consumer sets it
}

// resolving is the list together with its side table.
type resolving struct {
	list    List[txn]
	table   [resolveKeys]atomic.Uint64
	applied atomic.Uint64

	nextSeq   uint64       // the consumer's
	committed []*Node[txn] // the consumer's
	fault     fault
}

// fault is a rule of the protocol that is broken on purpose.
type fault int

const (
	faultNone           fault = iota
	faultTableOnce            // after a failed push the table is not checked again
	faultTableFirst           // the table is checked before the walk
	faultCutEarly             // links are cut before the table is written
	faultWatermarkEarly       // the watermark moves before the table is written
	faultNoWalk               // only the table is checked
)

// resolve is what a transaction does. pause is called between any two steps.
func (r *resolving) resolve(n *Node[txn], pause func()) bool {
	t := &n.Value
	t.snapshot = r.applied.Load()
	for attempt := 0; ; attempt++ {
		pause()
		h := r.list.Head()
		if r.fault == faultTableFirst && r.inTable(t) {
			return false
		}
		for o := h; o != nil && r.fault != faultNoWalk; o = o.Next() {
			pause()
			seq := o.Value.seq.Load()
			if seq != 0 && seq <= t.snapshot {
				break
			}
			if slices.ContainsFunc(t.keys, func(k int) bool { return slices.Contains(o.Value.keys, k) }) {
				return false
			}
			pause()
		}
		pause()
		skip := r.fault == faultTableFirst || r.fault == faultTableOnce && attempt > 0
		if !skip && r.inTable(t) {
			return false
		}
		pause()
		if r.list.Push(n, h) {
			return true
		}
	}
}

func (r *resolving) inTable(t *txn) bool {
	return slices.ContainsFunc(t.keys, func(k int) bool { return r.table[k].Load() > t.snapshot })
}

// consume processes one batch.
func (r *resolving) consume(buf []*Node[txn], pause func()) []*Node[txn] {
	batch := r.list.Drain(buf[:0])
	if len(batch) == 0 {
		return batch
	}
	pause()
	for _, n := range batch {
		r.nextSeq++
		n.Value.seq.Store(r.nextSeq)
		r.committed = append(r.committed, n)
		pause()
	}
	newest := batch[len(batch)-1]
	if r.fault == faultCutEarly {
		r.list.Cut(newest)
		pause()
	}
	if r.fault == faultWatermarkEarly {
		r.applied.Store(r.nextSeq)
		r.list.Cut(newest)
		pause()
	}
	for _, n := range batch {
		for _, k := range n.Value.keys {
			r.table[k].Store(n.Value.seq.Load())
			pause()
		}
	}
	r.applied.Store(r.nextSeq)
	pause()
	r.list.Cut(newest)
	return batch
}

// violation returns a pair of commits with a common key of which the later one
// did not see the earlier one, if there is one.
func (r *resolving) violation() (earlier, later *txn) {
	byKey := make([][]*txn, resolveKeys)
	for _, n := range r.committed {
		for _, k := range n.Value.keys {
			byKey[k] = append(byKey[k], &n.Value)
		}
	}
	for _, txns := range byKey {
		slices.SortFunc(txns, func(a, b *txn) int { return cmp.Compare(a.seq.Load(), b.seq.Load()) })
		for i := 1; i < len(txns); i++ {
			if txns[i].snapshot < txns[i-1].seq.Load() {
				return txns[i-1], txns[i]
			}
		}
	}
	return nil, nil
}

func randomKeys(rng *rand.Rand) []int {
	return rng.Perm(resolveKeys)[:1+rng.IntN(2)]
}

// runSchedule interleaves the steps of a consumer and of three transactions at a time, as the seed says.
func runSchedule(seed uint64, f fault) *resolving {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := &resolving{fault: f}
	type actor struct {
		next func() (struct{}, bool)
		stop func()
	}
	spawn := func(body func(pause func())) actor {
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			body(func() { yield(struct{}{}) })
		})
		return actor{next, stop}
	}
	var actors []actor
	for range 3 {
		keys := [][]int{randomKeys(rng), randomKeys(rng)}
		actors = append(actors, spawn(func(pause func()) {
			for _, k := range keys {
				r.resolve(&Node[txn]{Value: txn{keys: k}}, pause)
				pause()
			}
		}))
	}
	actors = append(actors, spawn(func(pause func()) {
		for range 4 {
			r.consume(nil, pause)
			pause()
		}
	}))
	for len(actors) > 0 {
		// An actor runs for several steps in a row, so that the others stay far behind or ahead.
		i := rng.IntN(len(actors))
		for range 1 + rng.IntN(6) {
			if _, more := actors[i].next(); !more {
				actors[i].stop()
				actors = slices.Delete(actors, i, i+1)
				break
			}
		}
	}
	r.consume(nil, func() {})
	return r
}

func TestResolveSchedules(t *testing.T) {
	schedules := uint64(20_000)
	if testing.Short() {
		schedules = 2_000
	}
	for seed := range schedules {
		r := runSchedule(seed, faultNone)
		earlier, later := r.violation()
		require.Nil(t, later, "seed %d: %v missed %v", seed, later, earlier)
	}
}

// TestResolveSchedulesFindFaults shows that the schedules would find each rule
// broken.
func TestResolveSchedulesFindFaults(t *testing.T) {
	for f := faultTableOnce; f <= faultNoWalk; f++ {
		found := false
		for seed := uint64(0); seed < 100_000 && !found; seed++ {
			_, later := runSchedule(seed, f).violation()
			found = later != nil
			if found {
				t.Logf("fault %d found by seed %d", f, seed)
			}
		}
		require.True(t, found, "fault %d was not found", f)
	}
}

// TestResolveRetryFindsConflictInTable runs the schedule in which a transaction must check the table again after a
// failed push.
func TestResolveRetryFindsConflictInTable(t *testing.T) {
	r := &resolving{}
	none := func() {}
	loser := &Node[txn]{Value: txn{keys: []int{1}}}
	step := 0
	won := r.resolve(loser, func() {
		// Before the first push: after walking an empty list and an empty table.
		if step++; step == 3 {
			require.True(t, r.resolve(&Node[txn]{Value: txn{keys: []int{1}}}, none))
			r.consume(nil, none)
			require.True(t, r.resolve(&Node[txn]{Value: txn{keys: []int{2}}}, none))
			r.consume(nil, none)
			require.Nil(t, r.list.Head().Next(), "the winner can't be walked to")
		}
	})
	require.False(t, won)
}

func TestResolveConcurrently(t *testing.T) {
	const goroutines = 16
	each := 4_000
	if testing.Short() {
		each = 500
	}
	r := &resolving{}
	pause := func() {
		if rand.IntN(16) == 0 {
			runtime.Gosched()
		}
	}
	var workers sync.WaitGroup
	var won, lost atomic.Int64
	for g := range goroutines {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			for range each {
				if r.resolve(&Node[txn]{Value: txn{keys: randomKeys(rng)}}, pause) {
					won.Add(1)
				} else {
					lost.Add(1)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		workers.Wait()
		close(done)
	}()
	var buf []*Node[txn]
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			runtime.Gosched()
		}
		buf = r.consume(buf, pause)
	}
	earlier, later := r.violation()
	require.Nil(t, later, "%v missed %v", later, earlier)
	require.Len(t, r.committed, int(won.Load()), "every push was drained once")
	require.NotZero(t, lost.Load())
	require.Nil(t, r.list.Head().Next())
	t.Logf("%d committed, %d aborted", won.Load(), lost.Load())
}
