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
	// Secret is the table's; nil if it has none.
	Secret []byte
	// Timeout ends a call whose context has no earlier end. 0 is 10 s. Until then a call is tried again.
	Timeout time.Duration
	// Algorithm is Fast, unless all clients of the table use another one.
	Algorithm Algorithm
	// Locking has PutAll and GetAll use strict two-phase locking instead of RAMP. For comparison; all clients of the table do the same.
	Locking bool
	// Slots is how many places of keys are kept for one-sided Reads (GET*), 48 bytes each. 0 is 65,536; -1 turns one-sided Reads off (GET+).
	Slots int
	// Spin is how many times a caller that waits looks in vain before it sleeps. 0 is 2,000.
	Spin int
	// Carrier is how messages travel; 0 is wire.CarrierRing. The other ones are for comparison.
	Carrier wire.Carrier
	// BeforeCommit, if there is one, is called when all partitions have prepared a PutAll of several partitions and none was told to commit. It is
	// for tests of what happens when a client dies there.
	BeforeCommit func(ts Timestamp)
	// Fabrics are domains by the scheme of addresses, in addition to shm and tcp. The caller closes them, after the Client.
	Fabrics map[string]fabric.Domain
}

const (
	defaultTimeout = 10 * time.Second
	defaultSlots   = 1 << 16
	spinPolls      = 2000
	tickEvery      = 5 * time.Millisecond
	// tickPolls is how many looks in vain there are between two looks at the clock.
	tickPolls = 256
)

// A Client is a connection to a table, for all goroutines.
type Client struct {
	o      Options
	ctx    context.Context // until Close
	cancel context.CancelFunc
	kept   chan struct{}

	// lock makes its holder the driver, who alone uses e, nets and ticked.
	lock     sync.Mutex
	e        *engine
	nets     []*network
	ticked   time.Time
	sleeping atomic.Pointer[network] // that the driver waits for

	mu      sync.Mutex // guards tasks; no other lock is taken while it is held
	tasks   []func()
	hasTask atomic.Bool
	waiters waiters
	// addrs are where nodes of the table are: the one that has answered, or all that Dial was given if partitions have replicas. Then places says which node
	// serves which partition, as far as is known. Both are the driver's.
	addrs  []string
	places circle.Map
}

// Dial connects to all partitions of a table. The addresses are of one node, as "shm:/run/flashdbm/node.sock" or "tcp:10.0.0.1:7400", or of some nodes of a
// table of several: the first that answers is used, and tells where the others are. Dial returns when every partition is connected, or with an error when the context ends first; without an end it is
// Options.Timeout.
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

// PutAll writes all pairs in one atomic transaction, and returns its timestamp: GetAll sees all of it or nothing. Of pairs with the same key the
// last one counts. Keys and values stay as they are until PutAll returns, and are not kept. After ErrUnknownOutcome the transaction was, or will be,
// applied as a whole or not at all; after any other error nothing was written.
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

// GetAll reads all keys in one atomic transaction, in the order given. The values are the caller's. The errors are ErrUnavailable, ErrTooLarge,
// ErrClosed, and ErrFull if a partition's memory does not hold even one of the keys at a time; a key without a value is none.
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

// give gives a transaction up. The driver calls it.
func (c *Client) give(t transaction, why error) {
	if !t.core().ended {
		t.abandon(c.e, why)
	}
}

// deadline is when a call ends by the engine's clock.
func (c *Client) deadline(ctx context.Context) int64 {
	d := c.o.Timeout
	if end, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(end))
	}
	return c.e.look() + int64(d)
}

// Close ends the client. Calls under way return errors that are ErrUnavailable or ErrUnknownOutcome.
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

// Stats returns what the client has done since Dial.
func (c *Client) Stats() Stats {
	got := make(chan Stats, 1)
	c.do(func() { got <- c.e.counts })
	return <-got
}

// startErr is the error of a call on a client that was closed.
func (c *Client) startErr() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return nil
}
