package ramp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric"
	"flashdbm/servers/wire"
)

// Options are copied by Dial; nil stands for the zero value.
type Options struct {
	// Secret is the table's secret; empty if it has none.
	Secret []byte
	// Timeout ends a call whose context does not end earlier; 0: 10 s. Until then a call is retried.
	Timeout time.Duration
	// Algorithm is Fast, unless all clients of the table use another one.
	Algorithm Algorithm
	// Locking makes PutAll and GetAll use strict two-phase locking instead of RAMP, for comparison. All clients of
	// the table have to use the same.
	Locking bool
	// Slots is the number of keys whose places are kept for one-sided Reads (GET*), 48 bytes each; 0: 65,536; -1
	// turns one-sided Reads off (GET+).
	Slots int
	// Spin is how many times a waiting caller polls in vain before it sleeps; 0: 2,000.
	Spin int
	// Carrier is how messages travel; 0: wire.CarrierRing. Other carriers are for comparison.
	Carrier wire.Carrier
	// BeforeCommit, unless nil, is called when all partitions have prepared a PutAll of several partitions and none
	// was told to commit. Tests use it to let a client die there.
	BeforeCommit func(ts Timestamp)
	// Fabrics are domains by the scheme of addresses, in addition to shm and tcp. The caller closes them after the
	// Client.
	Fabrics map[string]fabric.Domain
}

const (
	defaultTimeout = 10 * time.Second
	defaultSlots   = 1 << 16
	spinPolls      = 2000
	tickEvery      = 5 * time.Millisecond
	// tickPolls is the number of polls in vain between two readings of the clock.
	tickPolls = 256
)

// A Client is a connection to a table, for all goroutines.
type Client struct {
	o      Options
	ctx    context.Context // until Close
	cancel context.CancelFunc
	kept   chan struct{}

	// lock makes its holder the driver; only the driver uses e, nets and ticked.
	lock     sync.Mutex
	e        *engine
	nets     []*network
	ticked   time.Time
	sleeping atomic.Pointer[network] // the network on which the driver sleeps

	mu      sync.Mutex // guards tasks; no other lock is taken while it is held
	tasks   []func()
	hasTask atomic.Bool
	waiters waiters
	// addrs are addresses of nodes of the table: the one that has answered, or all that Dial was given if partitions
	// have replicas. Then places is the newest known map of nodes and partitions. Only the driver uses both.
	addrs  []string
	places circle.Map
}

// Dial connects to all partitions of a table. addrs are addresses of one node, as "shm:/run/flashdbm/node.sock" or
// "tcp:10.0.0.1:7400", or of some nodes of a table of several: the first node that answers is used, and tells the
// addresses of the others. Dial returns when every partition is connected, or with an error if the context ends
// first; it waits at most Options.Timeout.
func Dial(ctx context.Context, addrs []string, o *Options) (*Client, error) {
	if len(addrs) == 0 {
		return nil, errors.New("ramp: no addresses to dial")
	}
	c := newClient(o)
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	if err := c.connectAll(ctx, addrs); err != nil {
		c.shut()
		return nil, err
	}
	go c.keep()
	return c, nil
}

func newClient(o *Options) *Client {
	c := &Client{kept: make(chan struct{})}
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
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.e = newEngine(c.o.Algorithm, randomID(), systemClock())
	c.e.beforeCommit = c.o.BeforeCommit
	switch n := c.o.Slots; {
	case n == 0:
		c.e.slots = make(slots, defaultSlots)
	case n > 0:
		c.e.slots = make(slots, n)
	}
	return c
}

func systemClock() func() (int64, uint64) {
	start := time.Now()
	return func() (int64, uint64) {
		t := time.Now()
		return int64(t.Sub(start)), uint64(t.UnixMilli())
	}
}

func randomID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint64(b[:]) | 1
}

// PutAll writes all pairs in one atomic transaction, and returns its timestamp: GetAll sees all of it or nothing. Of
// pairs with the same key the last one wins. Keys and values must not change until PutAll returns; the client does
// not keep them. After ErrUnknownOutcome the transaction was, or will be, applied as a whole or not at all; after any
// other error nothing was written.
func (c *Client) PutAll(ctx context.Context, pairs []Pair) (ts Timestamp, err error) {
	w := c.waiters.get()
	defer c.waiters.put(w)
	var under transaction
	werr := c.wait(ctx, w, func() {
		done := func(t Timestamp, e error) {
			ts, err = t, e
			w.settle()
		}
		if c.o.Locking {
			under = c.e.startLockedPut(pairs, c.deadline(ctx), done)
		} else {
			under = c.e.startPut(pairs, c.deadline(ctx), done)
		}
	}, func(why error) { c.give(under, why) })
	if werr != nil {
		return 0, werr
	}
	return ts, err
}

// GetAll reads all keys in one atomic transaction, in the order given. The caller owns the values. The errors are
// ErrUnavailable, ErrTooLarge, ErrClosed, and ErrFull if a partition's memory cannot hold even a single one of the
// keys; a key without a value is no error.
func (c *Client) GetAll(ctx context.Context, keys [][]byte) (values []Value, err error) {
	w := c.waiters.get()
	defer c.waiters.put(w)
	var under transaction
	werr := c.wait(ctx, w, func() {
		done := func(v []Value, e error) {
			values, err = v, e
			w.settle()
		}
		if c.o.Locking {
			under = c.e.startLockedGet(keys, c.deadline(ctx), done)
		} else {
			under = c.e.startGet(keys, c.deadline(ctx), done)
		}
	}, func(why error) { c.give(under, why) })
	if werr != nil {
		return nil, werr
	}
	return values, err
}

// give gives a transaction up. Only the driver calls it.
func (c *Client) give(t transaction, why error) {
	if !t.core().ended {
		t.abandon(c.e, why)
	}
}

// deadline returns when a call ends, by the engine's clock.
func (c *Client) deadline(ctx context.Context) int64 {
	d := c.o.Timeout
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end))
	}
	return c.e.look() + int64(d)
}

// Close closes the client. Calls under way return errors that are ErrUnavailable or ErrUnknownOutcome.
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
	c.lock.Lock()
	c.take()
	c.e.close(ErrClosed)
	c.lock.Unlock()
	var errs []error
	for _, n := range c.nets {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// Stats returns the counters since Dial.
func (c *Client) Stats() Stats {
	got := make(chan Stats, 1)
	c.do(func() { got <- c.e.counts })
	return <-got
}

// startErr returns the error of a call on a closed client, nil for an open one.
func (c *Client) startErr() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}
