package hydra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra/protocol"
	served "flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// aHost is a node whose shards the test controls: it serves when the test says so, and answers what the test says.
type aHost struct {
	lines []wire.Line
	serve func(wire.Line)
	seed  uint64
}

func (h *aHost) Map() protocol.Map {
	m := protocol.Map{Version: 1, Seed: h.seed}
	for i := range cap(h.lines) {
		m.Shards = append(m.Shards, protocol.Place{Shard: uint32(i)})
	}
	return m
}

func (h *aHost) Join(_ uint32, l wire.Line) (func(), error) {
	h.lines = append(h.lines, l)
	return func() {
		if h.serve != nil {
			h.serve(l)
		}
	}, nil
}

func newHost(t *testing.T, o *Options) (*aHost, *Client) {
	h := &aHost{lines: make([]wire.Line, 0, 1)}
	c, err := Local(h, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return h, c
}

// answerGet answers a request that was received.
func answerGet(l wire.Line, m wire.Message, value string) {
	i := protocol.Item{Version: 7, Value: []byte(value)}
	b, _ := l.Begin(i.BodySize())
	h := wire.Header{Op: m.Op, Request: m.Request}
	l.End(&h, i.AppendBody(b))
}

func received(t *testing.T, l wire.Line) (m wire.Message) {
	require.Eventually(t, l.Waiting, time.Minute, time.Millisecond)
	m, ok := l.Receive()
	require.True(t, ok)
	m.Body = bytes.Clone(m.Body)
	return m
}

// TestLocalWithdraw ends a call's context while its request is queued, and while the request is being served. The
// call ends at once, and its key may be used for something else. The shard still serves the original request, and its
// late answer goes to nobody, although another call has taken the place of the first.
func TestLocalWithdraw(t *testing.T) {
	h, c := newHost(t, nil)
	l := h.lines[0]
	for _, served := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		key := []byte("first")
		var m wire.Message
		done := make(chan error)
		go func() {
			_, err := c.GetInto(ctx, key, make([]byte, 0, 100))
			done <- err
		}()
		require.Eventually(t, l.Waiting, time.Minute, time.Millisecond)
		if served {
			m = received(t, l)
		}
		cancel()
		err := <-done
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		copy(key, "other")
		second := make(chan string)
		go func() {
			v, err := c.Get(context.Background(), []byte("second"))
			second <- fmt.Sprintf("%s %v", v, err)
		}()
		if !served {
			m = received(t, l)
		}
		require.Equal(t, "first", string(m.Body))
		m2 := received(t, l)
		require.Equal(t, "second", string(m2.Body))
		answerGet(l, m, "of the first")
		select {
		case got := <-second:
			t.Fatalf("the answer to a call that was withdrawn went to another one: %s", got)
		case <-time.After(10 * time.Millisecond):
		}
		answerGet(l, m2, "of the second")
		require.Equal(t, "of the second <nil>", <-second)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.Put(ctx, []byte("key"), []byte("value"))
	require.ErrorIs(t, err, ErrUnknownOutcome)
}

// TestLocalTimeout has a shard that never answers.
func TestLocalTimeout(t *testing.T) {
	_, c := newHost(t, &Options{Timeout: 50 * time.Millisecond})
	_, err := c.Get(context.Background(), []byte("key"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	list := []Request{{Kind: Get, Key: []byte("a")}, {Kind: Put, Key: []byte("b")}}
	c.Batch(context.Background(), list)
	require.ErrorIs(t, list[0].Err, ErrUnavailable)
	require.ErrorIs(t, list[1].Err, ErrUnknownOutcome)
}

// TestLocalClosed closes the shard's end while calls wait, and then the client's end.
func TestLocalClosed(t *testing.T) {
	h, c := newHost(t, nil)
	done := make(chan error)
	go func() {
		_, err := c.Put(context.Background(), []byte("key"), nil)
		done <- err
	}()
	m := received(t, h.lines[0])
	h.lines[0].Close()
	err := <-done
	require.ErrorIs(t, err, ErrUnknownOutcome)
	require.ErrorIs(t, err, ErrClosed)
	answerGet(h.lines[0], m, "too late")
	_, err = c.Get(context.Background(), []byte("key"))
	require.ErrorIs(t, err, ErrClosed)
	require.False(t, h.lines[0].Waiting())
	require.ErrorIs(t, h.lines[0].Err(), ErrClosed)

	h, c = newHost(t, nil)
	go func() {
		_, err := c.Get(context.Background(), []byte("key"))
		done <- err
	}()
	received(t, h.lines[0])
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-done, ErrClosed)
	require.ErrorIs(t, h.lines[0].Err(), ErrClosed)
}

// TestLocalNoShard has a node that does not take the line of its second shard.
func TestLocalNoShard(t *testing.T) {
	h := &aHost{lines: make([]wire.Line, 0, 2)}
	_, err := Local(noSecond{h}, nil)
	require.ErrorContains(t, err, "shard 1: gone")
	require.ErrorIs(t, h.lines[0].Err(), ErrClosed)
}

type noSecond struct{ *aHost }

func (n noSecond) Join(shard uint32, l wire.Line) (func(), error) {
	if shard == 1 {
		return nil, errors.New("gone")
	}
	return n.aHost.Join(shard, l)
}

// TestLocalSleep answers calls at any moment while their callers go to sleep.
func TestLocalSleep(t *testing.T) {
	h, c := newHost(t, nil)
	var stop atomic.Bool
	var shard sync.WaitGroup
	shard.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for !stop.Load() {
			m, ok := h.lines[0].Receive()
			if !ok {
				continue
			}
			for range r.IntN(2000) {
				stop.Load()
			}
			answerGet(h.lines[0], m, "value")
		}
	})
	defer shard.Wait()
	defer stop.Store(true)
	rounds := 10_000
	if testing.Short() {
		rounds = 5_000
	}
	for range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		v, err := c.Get(ctx, []byte("key"))
		cancel()
		require.NoError(t, err, "an answer that nobody was woken for")
		require.Equal(t, "value", string(v))
	}
}

// TestLocal counts with ADD by function calls and by messages at the same time, in each durability, from many
// goroutines, with pauses in which the shards fall asleep. Nothing is lost, done twice, or mixed up, and no request
// stays with a shard that sleeps.
func TestLocal(t *testing.T) {
	for _, mode := range []served.Durability{served.Memory, served.Async, served.Sync} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			k := newClusterOf(t, 2, mode)
			local := k.local(nil)
			const goroutines, keys = 8, 5
			rounds := 400
			if mode == served.Sync {
				rounds = 50
			}
			var all sync.WaitGroup
			for g := range goroutines {
				c := local
				if g%4 == 0 {
					c = k.c
				}
				all.Go(func() {
					list := make([]Request, 3)
					for i := range rounds {
						key := fmt.Append(nil, "sum", i%keys)
						if i%3 == 0 {
							mine := fmt.Append(nil, "of ", g)
							list[0] = Request{Kind: Add, Key: key, N: 1}
							list[1] = Request{Kind: Put, Key: mine, Value: fmt.Append(nil, "round ", i)}
							list[2] = Request{Kind: Get, Key: []byte("sum0")}
							if err := c.Batch(k.ctx, list); err != nil && !errors.Is(err, ErrNotFound) {
								t.Error(err)
								return
							}
							v, err := c.Get(k.ctx, mine)
							if err != nil || !bytes.Equal(v, list[1].Value) {
								t.Errorf("%s: %q, %v", mine, v, err)
							}
						} else if _, err := c.Add(k.ctx, key, 1); err != nil {
							t.Error(err)
							return
						}
						if i%10 == g {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
			all.Wait()
			for i := range keys {
				got, err := local.Get(k.ctx, fmt.Append(nil, "sum", i))
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(goroutines*rounds/keys), string(got))
			}
			require.Positive(t, local.Stats().Local)
		})
	}
}

// TestLocalContexts ends contexts at random moments.
func TestLocalContexts(t *testing.T) {
	k := newClusterOf(t, 1, served.Sync)
	c := k.local(nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			key := []byte("key")
			for i := range 200 {
				ctx, cancel := context.WithTimeout(k.ctx, time.Duration(i*g%50)*20*time.Microsecond)
				_, err := c.Put(ctx, key, []byte("value"))
				cancel()
				if err != nil && (!errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded)) {
					t.Error(err)
				}
				key[0] ^= 1 // the key belongs to the caller again
			}
		})
	}
	wg.Wait()
	_, err := c.Get(k.ctx, []byte("key"))
	require.NoError(t, err)
}

// TestLocalNodeCloses closes a node while callers use it.
func TestLocalNodeCloses(t *testing.T) {
	for range 5 {
		k := newClusterOf(t, 2, served.Memory)
		c := k.local(nil)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				key := fmt.Append(nil, "key", g)
				for {
					if _, err := c.Put(k.ctx, key, []byte("value")); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		require.NoError(t, k.node.Close())
		wg.Wait()
	}
}
