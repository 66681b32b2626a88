package commit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastWrites: a note stands for keys that the table does not have yet. When the table has them, the note before it
// is restored.
func TestLastWrites(t *testing.T) {
	var w LastWrites
	w.Init(8, 16)
	w.Of(3).Store(5)
	require.EqualValues(t, 5, w.Of(3).Load())
	require.Same(t, w.Of(3), w.Of(11), "of eight")
	require.NotSame(t, w.Of(3), w.Of(4))
	require.Zero(t, w.Untold())
	w.Note(6)
	w.Note(7)
	require.EqualValues(t, 7, w.Untold())
	w.TakeBack()
	require.EqualValues(t, 6, w.Untold(), "the batch before is still untold")
}

// TestMarks: a batch is durable once all groups with a part of it are durable. The watermark is the newest such
// batch.
func TestMarks(t *testing.T) {
	var m Marks
	var durable atomic.Uint64
	requireDurable := func(group, seq uint64) {
		t.Helper()
		m.Publish(group, &durable)
		require.Equal(t, seq, durable.Load(), "group %d", group)
	}
	requireDurable(100, 0)
	m.Note(10, 1)
	m.Note(10, 2) // the same group again
	m.Note(12, 3)
	m.Note(13, 4)
	requireDurable(9, 0)
	requireDurable(10, 2)
	requireDurable(11, 2)
	requireDurable(12, 3)
	requireDurable(10, 3) // an earlier sync that is published later
	m.Note(20, 5)
	requireDurable(20, 5)
}

// TestWaiters: the next broadcast wakes every goroutine that has joined. Until checks its condition again even without
// a broadcast.
func TestWaiters(t *testing.T) {
	var w Waiters
	w.Init()
	w.Broadcast()
	require.False(t, w.Any())
	moved, leave := w.Join()
	require.True(t, w.Any())
	require.Empty(t, moved)
	w.Broadcast()
	<-moved
	leave()
	require.False(t, w.Any())

	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		w.Until(done.Load)
		close(ended)
	}()
	require.Eventually(t, w.Any, time.Minute, time.Millisecond)
	w.Broadcast() // for another condition
	done.Store(true)
	<-ended
	require.False(t, w.Any())
}

// TestGate: a closed gate blocks everyone except the goroutine that has closed it, and for a limited time only.
func TestGate(t *testing.T) {
	var g Gate
	g.Init()
	ctx := t.Context()
	g.Pass(ctx, nil)
	own := g.Close(ctx)
	require.NotNil(t, own)
	g.Pass(ctx, own)
	ended, end := context.WithCancel(ctx)
	end()
	require.Nil(t, g.Close(ended), "somebody has it closed, and the context has ended")
	g.Reopen(nil)

	began := time.Now()
	g.Pass(ctx, nil)
	require.GreaterOrEqual(t, time.Since(began), gateWait)
	passed := make(chan struct{})
	go func() {
		var none context.Context // as for most transactions
		g.Pass(none, nil)
		close(passed)
	}()
	g.Reopen(own)
	<-passed
	var none context.Context
	next := g.Close(none)
	require.NotNil(t, next, "it can be closed again")
	require.NotSame(t, own, next)
	g.Reopen(next)
}
