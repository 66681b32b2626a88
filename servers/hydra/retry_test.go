package hydra

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/machine"
	served "flashdbm/servers/shard"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBrokenConnections ends connections at random moments while goroutines add to counters. The node lives on, so
// every ADD is applied exactly once: all sums that were returned differ, and the last sum is the number of ADDs.
func TestBrokenConnections(t *testing.T) {
	k := newCluster(t, 2, nil)
	const goroutines, adds = 8, 150
	var mu sync.Mutex
	var sums []int64
	var broken atomic.Int64 // ended connections; the calls go on until there are some
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := 0; i < adds || broken.Load() < 3; i++ {
				sum, err := k.c.Add(k.ctx, []byte("counter"), 1)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				sums = append(sums, sum)
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	var breaker sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			k.c.do(func(e *engine) {
				for _, s := range e.shards {
					if s.conn != nil {
						s.conn.Close()
						broken.Add(1)
					}
				}
			})
		}
	})
	wg.Wait()
	close(stop)
	breaker.Wait()
	seen := map[int64]bool{}
	for _, s := range sums {
		require.False(t, seen[s], "sum %d twice", s)
		seen[s] = true
	}
	require.GreaterOrEqual(t, len(seen), goroutines*adds)
	require.True(t, seen[1] && seen[int64(len(seen))])
}

// TestRestart replaces the node by a new one: what the old one had in memory is gone, and calls go on.
func TestRestart(t *testing.T) {
	k := newCluster(t, 1, &Options{Timeout: 30 * time.Second})
	_, err := k.c.Put(k.ctx, []byte("old"), []byte("v"))
	require.NoError(t, err)
	for range 3 {
		_, err = k.c.Get(k.ctx, []byte("old"))
		require.NoError(t, err)
	}
	k.stopNode()
	ctx, cancel := context.WithTimeout(k.ctx, 50*time.Millisecond)
	defer cancel()
	_, err = k.c.Get(ctx, []byte("old"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	k.startNode()
	_, err = k.c.Get(k.ctx, []byte("old"))
	require.ErrorIs(t, err, ErrNotFound)
	_, err = k.c.Put(k.ctx, []byte("new"), []byte("v"))
	require.NoError(t, err)
}

// TestRestartOfShards: a node in memory hashes keys differently in its next life. A client that has outlived the last
// life learns this by the version of the map.
func TestRestartOfShards(t *testing.T) {
	k := newCluster(t, 3, &Options{Timeout: 30 * time.Second})
	for life := range 3 {
		if life > 0 {
			k.stopNode()
			time.Sleep(200 * time.Millisecond)
			k.startNode()
		}
		for i := range 50 {
			key := fmt.Append(nil, "key", i)
			if life > 0 {
				_, err := k.c.Get(k.ctx, key)
				require.ErrorIs(t, err, ErrNotFound, "life %d, %s", life, key)
			}
			_, err := k.c.Put(k.ctx, key, key)
			require.NoError(t, err, "life %d, %s", life, key)
			for range 3 {
				got, err := k.c.Get(k.ctx, key)
				require.NoError(t, err, "life %d, %s", life, key)
				require.Equal(t, key, got)
			}
		}
	}
}

// TestSecret dials a node without a secret, with none and with an empty one, and a node that has a secret with the
// right one, another one, and none.
func TestSecret(t *testing.T) {
	k := newCluster(t, 1, nil)
	try := func(secret []byte) error {
		d := k.net.Open()
		defer d.Close()
		ctx, cancel := context.WithTimeout(k.ctx, time.Minute)
		defer cancel()
		c, err := Dial(ctx, []string{"mem:node"}, &Options{Secret: secret, Timeout: time.Minute, Fabrics: map[string]fabric.Domain{"mem": d}})
		if err != nil {
			return err
		}
		_, err = c.Put(ctx, []byte("key"), []byte("v"))
		require.NoError(t, c.Close())
		return err
	}
	require.NoError(t, try(nil))
	require.NoError(t, try([]byte{}), "as of a password that is not set")
	require.ErrorIs(t, try([]byte("secret")), ErrDenied)

	k.stopNode()
	k.o.Secret = []byte("secret")
	k.startNode()
	require.NoError(t, try([]byte("secret")))
	require.ErrorIs(t, try([]byte("Secret")), ErrDenied)
	require.ErrorIs(t, try([]byte{}), ErrDenied)
	require.ErrorIs(t, try(nil), ErrDenied)
}

// TestAddresses: errors about addresses say what is wrong with the address.
func TestAddresses(t *testing.T) {
	for _, a := range []string{"", "nothing", "nosuch:1", "shm:"} {
		_, err := Dial(t.Context(), []string{a}, nil)
		require.ErrorContains(t, err, "address")
	}
	_, err := Dial(t.Context(), nil, nil)
	require.ErrorContains(t, err, "no addresses")
}

// TestFabrics serves the same node over shm and tcp, each to a client of its own: the library opens both fabrics by
// itself.
func TestFabrics(t *testing.T) {
	for _, scheme := range []string{"shm", "tcp"} {
		t.Run(scheme, func(t *testing.T) {
			d, err := fabrics[scheme]()
			if err != nil {
				t.Skip(err) // shm is for Linux
			}
			defer d.Close()
			addr := t.TempDir() + "/s"
			if scheme == "tcp" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				addr = l.Addr().String() // a free port
				require.NoError(t, l.Close())
			}
			at := scheme + ":" + addr
			n, err := machine.Open(machine.Options{Shards: 2, Durability: served.Memory, Extent: 8 << 20, Listen: []machine.Listen{{Domain: d, Addr: addr, Public: at}}})
			require.NoError(t, err)
			defer func() { require.NoError(t, n.Close()) }()
			c, err := Dial(t.Context(), []string{at}, nil)
			require.NoError(t, err)
			for range 5 {
				for _, key := range []string{"a", "b", "c", "d"} {
					_, err = c.Put(t.Context(), []byte(key), []byte("value of "+key))
					require.NoError(t, err)
					for range 3 {
						got, err := c.Get(t.Context(), []byte(key))
						require.NoError(t, err)
						require.Equal(t, "value of "+key, string(got))
					}
				}
			}
			large := make([]byte, 1<<20)
			large[77] = 1
			_, err = c.Put(t.Context(), []byte("large"), large)
			require.NoError(t, err)
			got, err := c.Get(t.Context(), []byte("large"))
			require.NoError(t, err)
			require.Equal(t, large, got)
			require.Equal(t, scheme == "shm", c.Stats().OneSided > 0, "one-sided GETs")
			require.NoError(t, c.Close())
		})
	}
}
