package wire

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/fabric/mem"

	"github.com/stretchr/testify/require"
)

// TestSleeper: a thread that wakes by itself, or by another queue, is not woken a second time by the same event, so
// its later sleeps last.
func TestSleeper(t *testing.T) {
	d := mem.NewNetwork().Open()
	defer d.Close()
	g, err := NewGroup(d, 16)
	require.NoError(t, err)
	defer g.Close()
	var wakes atomic.Int32
	s := NewSleeper(g, func() { wakes.Add(1) })
	defer s.End()
	sleeps := func(n int) {
		for range n {
			ctx, cancel := context.WithCancel(context.Background())
			s.Start(ctx)
			time.Sleep(time.Millisecond)
			s.Stop()
			cancel()
		}
	}
	sleeps(50)
	require.Zero(t, wakes.Load())
	for want := int32(1); want <= 20; want++ {
		before := wakes.Load()
		s.Start(context.Background())
		g.Wake() // as if the other queue had been notified
		require.Eventually(t, func() bool { return wakes.Load() == before+1 }, 10*time.Second, time.Millisecond)
		s.Stop()
		sleeps(2)
	}
	require.Less(t, wakes.Load(), int32(30))
}
