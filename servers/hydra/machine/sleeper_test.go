package machine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// TestSleeper: a thread that wakes by itself, or by the other queue, is not woken again for it: its sleeps last.
func TestSleeper(t *testing.T) {
	d := mem.NewNetwork().Open()
	defer d.Close()
	g, err := wire.NewGroup(d, 16)
	require.NoError(t, err)
	defer g.Close()
	var wakes atomic.Int32
	s := &sleeper{group: g, wake: func() { wakes.Add(1) }, begin: make(chan context.Context), ended: make(chan struct{}, 1)}
	go s.run()
	defer close(s.begin)
	sleeps := func(n int) {
		for range n {
			ctx, cancel := context.WithCancel(context.Background())
			s.start(ctx)
			time.Sleep(time.Millisecond)
			s.stop()
			cancel()
		}
	}
	sleeps(50)
	require.Zero(t, wakes.Load())
	for want := int32(1); want <= 20; want++ {
		before := wakes.Load()
		s.start(context.Background())
		g.Wake() // somebody has notified the other queue
		require.Eventually(t, func() bool { return wakes.Load() == before+1 }, 10*time.Second, time.Millisecond)
		s.stop()
		sleeps(2)
	}
	require.Less(t, wakes.Load(), int32(30))
}
