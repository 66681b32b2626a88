package sim

import (
	"context"
	"fmt"
	"hash/fnv"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/fabrictest"
)

// The suite has many goroutines, but a World is run by one. This wrapper lets one goroutine in at a time. A goroutine
// that has to wait runs the World meanwhile. The World's time does not run ahead of real time: otherwise timeouts
// would end before the other side has run.
type world struct {
	mu    sync.Mutex
	w     *World
	began time.Time
}

// step runs the events that are due.
func (w *world) step() bool {
	return len(w.w.events) > 0 && w.w.events[0].at <= time.Since(w.began) && w.w.Step()
}

func (w *world) enter() func() {
	w.mu.Lock()
	return w.mu.Unlock
}

// until runs the World until done returns true. done is called with the lock held.
func (w *world) until(ctx context.Context, done func() bool) error {
	for {
		w.mu.Lock()
		if done() {
			w.mu.Unlock()
			return nil
		}
		more := w.step()
		w.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		if !more {
			runtime.Gosched()
		}
	}
}

type domain struct {
	*Domain
	w *world
}

func (d domain) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	defer d.w.enter()()
	return d.Domain.Alloc(n, a)
}

func (d domain) NewQueue(depth int) (fabric.Queue, error) {
	defer d.w.enter()()
	q, err := d.Domain.NewQueue(depth)
	if err != nil {
		return nil, err
	}
	return queue{q.(*Queue), d.w}, nil
}

func (d domain) Listen(addr string) (fabric.Listener, error) {
	defer d.w.enter()()
	l, err := d.Domain.Listen(addr)
	if err != nil {
		return nil, err
	}
	return listener{l.(*Listener), d.w}, nil
}

func (d domain) Dial(ctx context.Context, addr string, hello []byte, o fabric.EndpointOptions) (e fabric.Endpoint, answer []byte, err error) {
	over := false
	leave := d.w.enter()
	d.DialFunc(addr, hello, o, func(e1 fabric.Endpoint, answer1 []byte, err1 error) { over, e, answer, err = true, e1, answer1, err1 })
	leave()
	if late := d.w.until(ctx, func() bool { return over || d.closed }); late != nil {
		return nil, nil, late
	}
	if err != nil || !over {
		return nil, nil, fmt.Errorf("no connection: %w", err)
	}
	return connection{e.(*endpoint), d.w}, answer, nil
}

func (d domain) Close() error {
	defer d.w.enter()()
	return d.Domain.Close()
}

type queue struct {
	*Queue
	w *world
}

func (q queue) Poll(dst []fabric.WC) int {
	defer q.w.enter()()
	q.w.step()
	return q.Queue.Poll(dst)
}

func (q queue) Wait(ctx context.Context, spin int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := q.w.until(ctx, func() bool { return q.Closed() || q.TakeNotified() || q.Ready() }); err != nil {
		return err
	}
	if q.Closed() {
		return fabric.ErrClosed
	}
	return nil
}

func (q queue) Wake() {
	defer q.w.enter()()
	q.Queue.Wake()
}

type listener struct {
	*Listener
	w *world
}

func (l listener) Accept(ctx context.Context) (in fabric.Incoming, err error) {
	var asked *Incoming
	if err := l.w.until(ctx, func() bool {
		if len(l.asked) > 0 {
			asked, l.asked = l.asked[0], l.asked[1:]
		}
		return l.closed || asked != nil
	}); err != nil {
		return nil, err
	}
	if asked == nil {
		return nil, fabric.ErrClosed
	}
	return incoming{asked, l.w}, nil
}

func (l listener) Close() error {
	defer l.w.enter()()
	return l.Listener.Close()
}

type incoming struct {
	*Incoming
	w *world
}

func (in incoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	defer in.w.enter()()
	e, err := in.Incoming.Accept(o, answer)
	if err != nil {
		return nil, err
	}
	return connection{e.(*endpoint), in.w}, nil
}

func (in incoming) Reject(reason string) error {
	defer in.w.enter()()
	return in.Incoming.Reject(reason)
}

type connection struct {
	*endpoint
	w *world
}

func (c connection) Post(w []fabric.WR) (int, error) {
	defer c.w.enter()()
	return c.endpoint.Post(w)
}

func (c connection) Err() error {
	defer c.w.enter()()
	return c.endpoint.Err()
}

func (c connection) Close() error {
	defer c.w.enter()()
	return c.endpoint.Close()
}

// Done runs the World until the endpoint has ended, or for as long as an operation may take, because some callers wait
// for Done only.
func (c connection) Done() <-chan struct{} {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	c.w.until(ctx, func() bool { return c.endpoint.err != nil })
	return c.endpoint.Done()
}

func TestConformance(t *testing.T) {
	w := &world{w: New(1, Faults{Delay: 2 * time.Microsecond}), began: time.Now()}
	defer w.w.Close()
	var names atomic.Uint64
	fabrictest.Run(t, fabrictest.Provider{
		Open: func() (fabric.Domain, error) {
			defer w.enter()()
			return domain{w.w.NewNode(fmt.Sprint(names.Add(1))).Domain(), w}, nil
		},
		Addr: func(string) string { return fmt.Sprint("owner ", names.Add(1)) },
	})
}

// TestModel carries out random operations with both ends in this goroutine.
func TestModel(t *testing.T) {
	const each = 10_000 // operations for each seed
	for seed := uint64(0); int(seed)*each < fabrictest.Operations(); seed++ {
		p := newPair(t, seed, Faults{})
		key := p.shared.Key()
		room, err := p.b.Domain().Alloc(64<<10, 0)
		require.NoError(t, err)
		received := fnv.New64a()
		recv := []fabric.WR{{Op: fabric.Recv, Local: room, LLen: 64 << 10}}
		p.w.RunUntil(time.Second, func() bool { return p.be != nil })
		_, err = p.be.Post(recv)
		require.NoError(t, err)
		var wc [1]fabric.WC
		receive := func() {
			if p.bq.Poll(wc[:]) == 1 {
				received.Write(room.Bytes()[:wc[0].Len])
				p.be.Post(recv)
			}
		}
		m := fabrictest.NewModel(seed, p.local, key, limits)
		for done := 0; done < each; {
			batch, signalled := m.Batch()
			p.post(t, batch...)
			ok := p.w.RunUntil(10*time.Second, func() bool {
				receive()
				for p.aq.Poll(wc[:]) == 1 {
					signalled--
					require.NoError(t, wc[0].Err, "seed %d", seed)
				}
				return signalled == 0
			})
			require.True(t, ok, "seed %d: no completion", seed)
			require.True(t, m.Complete(), "seed %d, after %d operations", seed, done)
			done += len(batch)
		}
		receive()
		require.Equal(t, m.Sent.Sum64(), received.Sum64(), "seed %d", seed)
		require.Equal(t, m.Remote[:], p.shared.Bytes(), "seed %d", seed)
		require.NoError(t, p.w.Close())
	}
}
