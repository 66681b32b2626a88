package hydra

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/hydra/protocol"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSightsUnderFire has goroutines make GETs themselves while connections end and the machine seems to be
// suspended. No GET returns a value older than the last one whose write was acknowledged before the GET. At the end
// the client is closed while they run.
func TestSightsUnderFire(t *testing.T) {
	k := newCluster(t, 1, nil)
	key := []byte("key")
	var written atomic.Uint64
	var over atomic.Bool
	write := func() error {
		n := written.Load() + 1
		_, err := k.c.Put(k.ctx, key, binary.LittleEndian.AppendUint64(nil, n))
		if err == nil {
			written.Store(n)
		}
		return err
	}
	require.NoError(t, write())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			dst := make([]byte, 0, 64)
			for !over.Load() {
				least := written.Load()
				got, err := k.c.GetInto(k.ctx, key, dst)
				switch {
				case errors.Is(err, ErrClosed):
					return
				case err != nil:
					t.Error(err)
					return
				default:
					if n := binary.LittleEndian.Uint64(got); n < least || n > written.Load()+1 {
						t.Errorf("%d was read, behind the write of %d", n, least)
						return
					}
				}
			}
		})
	}
	defer readers.Wait()
	defer over.Store(true)
	for i := range 30 {
		time.Sleep(time.Duration(i%5) * time.Millisecond)
		switch i % 5 {
		case 2:
			k.c.do(func(e *engine) {
				for _, s := range e.shards {
					if s.conn != nil {
						s.conn.Close()
					}
				}
			})
		case 4:
			k.c.e.clock.jumps.Add(1) // as by any goroutine that reads the clock and finds a jump
		}
		if err := write(); err != nil && !errors.Is(err, ErrUnknownOutcome) {
			require.NoError(t, err)
		}
	}
	require.Positive(t, k.c.Stats().OneSided)
	require.NoError(t, k.c.Close())
}

// TestNoTickBehindClose: a caller makes its GET before Close, and finds afterwards that a Tick is due. It then
// connects to no node.
func TestNoTickBehindClose(t *testing.T) {
	c := newClient(nil)
	c.e.setMap(protocol.Map{Version: 1, Seed: 5, Shards: []protocol.Place{{Shard: 0, Addrs: []string{"x:y"}}}})
	require.NoError(t, c.shut())
	c.tickNow()
	require.Zero(t, c.e.shards[0].dials)
}

// TestReadDoneBeforeSleep completes a Read between the last Step of a driver and its sleep: the GET ends all the
// same, and its place is free again.
func TestReadDoneBeforeSleep(t *testing.T) {
	k := newCluster(t, 1, nil)
	key := []byte("key")
	_, err := k.c.Put(k.ctx, key, []byte("value"))
	require.NoError(t, err)
	for range 3 { // brings the pointer, and the key of its extent
		_, err = k.c.Get(k.ctx, key)
		require.NoError(t, err)
	}
	x := &call{op: protocol.OpGet, key: key, waiter: &waiter{token: make(chan struct{}, 1)}, slot: -1}
	x.waiter.left.Store(1)
	k.c.do(func(e *engine) {
		e.start(x)
		require.NotNil(t, x.reading, "it goes by a Read")
		ctx, cancel := context.WithCancel(k.ctx)
		cancel()
		k.c.sleep(ctx)
		assert.True(t, x.waiter.done(), "the Read is complete")
		assert.Len(t, e.fabric[0].places, readPlaces)
	})
	require.Equal(t, "value", string(x.out))
}
