package hydra

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// Options are copied by Dial; nil stands for the zero value.
type Options struct {
	// Secret is the cluster's secret; empty if it has none.
	Secret []byte
	// Timeout ends a call whose context does not end earlier; 0: 10 s. Until then a call is retried when shards move
	// or fail.
	Timeout time.Duration
	// Pointers is the number of pointers kept for one-sided GETs, some 200 bytes each; 0: 65,536; -1 turns one-sided
	// GETs off.
	Pointers int
	// Spin is how many times a waiting caller polls in vain before it sleeps; 0: 2,000, some 20 to 50 µs, more than a
	// round trip to a shard that has a processor of its own. Smaller: more of the processor for others, and more
	// frequent wake-ups.
	Spin int
	// Carrier is how messages travel; 0: wire.CarrierRing. Other carriers are for comparison.
	Carrier wire.Carrier
	// Fabrics are domains by the scheme of addresses, in addition to those of this package. The caller closes them
	// after the Client.
	Fabrics map[string]fabric.Domain
}

const (
	defaultTimeout  = 10 * time.Second
	defaultPointers = 1 << 16
)

// A Client is a connection to a cluster, for all goroutines.
type Client struct {
	o       Options
	id      uint64
	ctx     context.Context // until Close
	cancel  context.CancelFunc
	kept    chan struct{}
	calls   sync.Pool // of *op
	batches sync.Pool // of *batchOp

	// lock makes its holder the driver; only the driver uses e and ticked. Goroutines only try the lock; none waits
	// for it.
	lock     sync.Mutex
	e        *engine
	ticked   time.Time
	tickDue  atomic.Int64            // when the next Tick is due, by the engine's clock: for callers that make their GETs themselves
	sleeping atomic.Pointer[network] // the network on which the driver sleeps

	submitted atomic.Pointer[call] // a stack
	taskMu    sync.Mutex           // guards tasks; no other lock is taken while it is held
	tasks     []func(*engine)
	hasTasks  atomic.Bool

	// Fields of a client of Local; they are immutable. lines is by shard; only is the line if there is just one.
	lines  map[uint32]*line
	only   *line
	circle *circle.Circle
	seed   uint64
	handed atomic.Uint64 // number of calls

	netMu  sync.Mutex // guards nets and opened; no other lock is taken while it is held
	nets   map[string]*network
	opened []fabric.Domain
}

// Dial connects to all shards of a cluster. addrs are addresses of some of its nodes, as "shm:/run/flashdbm/n1.sock"
// or "tcp:10.0.0.1:7400": the first node that answers gives the addresses of the others. Dial returns when every
// shard is connected, or with an error if the context ends first; it waits at most Options.Timeout.
func Dial(ctx context.Context, addrs []string, o *Options) (*Client, error) {
	if len(addrs) == 0 {
		return nil, errors.New("hydra: no addresses to dial")
	}
	c := newClient(o)
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	c.lock.Lock()
	err := c.bootstrap(ctx, addrs)
	if err == nil {
		err = c.drivePlain(ctx, func() bool {
			for _, s := range c.e.shards {
				if s.conn == nil {
					return false
				}
			}
			return true
		})
	}
	if err != nil {
		for _, s := range c.e.shards {
			if s.conn == nil && s.lastErr != nil {
				err = fmt.Errorf("%w; shard %d: %w", err, s.id, s.lastErr)
			}
		}
	}
	c.release()
	if err != nil {
		c.shut()
		return nil, err
	}
	go c.keep()
	return c, nil
}

func newClient(o *Options) *Client {
	c := &Client{kept: make(chan struct{}), nets: map[string]*network{}, id: randomID()}
	if o != nil {
		c.o = *o
	}
	if c.o.Timeout == 0 {
		c.o.Timeout = defaultTimeout
	}
	if c.o.Spin <= 0 {
		c.o.Spin = spinPolls
	}
	if c.o.Carrier == 0 {
		c.o.Carrier = wire.CarrierRing
	}
	places := c.o.Pointers
	if places == 0 {
		places = defaultPointers
	}
	c.e = newEngine(systemClock(), max(places, 2))
	c.e.timeout, c.e.noPointer = int64(c.o.Timeout), places < 0
	c.calls.New = func() any { return newOp() }
	c.batches.New = func() any { return &batchOp{w: waiter{token: make(chan struct{}, 1)}} }
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close closes the client. Calls under way return ErrClosed or ErrUnknownOutcome.
func (c *Client) Close() error {
	if c.ctx.Err() != nil {
		return nil
	}
	c.cancel()
	<-c.kept
	return c.shut()
}

func (c *Client) shut() error {
	c.cancel()
	done := make(chan struct{})
	c.do(func(e *engine) {
		e.close(ErrClosed)
		close(done)
	})
	<-done
	c.netMu.Lock()
	defer c.netMu.Unlock()
	var errs []error
	for _, d := range c.opened {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Stats are the counters of a client.
type Stats struct {
	Messages uint64 // requests sent by message
	OneSided uint64 // GETs answered by a Read
	Refused  uint64 // Reads whose copy was invalid, or too late
	Local    uint64 // requests that were function calls
}

// Stats returns the counters since Dial.
func (c *Client) Stats() Stats {
	got := make(chan Stats, 1)
	c.do(func(e *engine) { got <- Stats{e.messages, e.reads.oneSided(), e.reads.refused.Load(), c.handed.Load()} })
	return <-got
}

// An op is a call with its own waiter, used repeatedly.
type op struct {
	call
	w    waiter
	list [1]*call
	land []byte // the landing place of a Read that the caller makes itself
}

func newOp() *op {
	o := &op{}
	o.w.token = make(chan struct{}, 1)
	o.list[0] = &o.call
	return o
}

// get returns an op to fill in.
func (c *Client) get(code protocol.Op, key []byte) *op {
	o := c.calls.Get().(*op)
	o.call = call{op: code, key: key, waiter: &o.w, slot: -1}
	return o
}

func (c *Client) put(o *op) {
	o.call = call{}
	c.calls.Put(o)
}
