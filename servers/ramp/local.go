package ramp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"flashdbm/servers/ramp/protocol"
)

// A Host is a node of the table in the same process; *machine.Node is one. It has all partitions. The host may call
// done and each after the call has returned, from another goroutine; they do not call the host. It keeps nothing of q,
// nor of the keys and values, when the call has returned.
type Host interface {
	Table() (seed uint64, partitions uint32)
	Prepare(partition uint32, q *protocol.Prepare, flags protocol.Flags, done func(protocol.Status, protocol.Timestamp))
	Commit(partition uint32, d protocol.Transaction, done func(protocol.Status))
	// Finished is called when all partitions of a transaction have answered COMMIT.
	Finished(partition uint32, d protocol.Transaction)
	Abort(partition uint32, d protocol.Transaction, done func(protocol.Status))
	Get(partition uint32, q *protocol.Get, flags protocol.Flags, each func(i int, v *protocol.Version), done func(protocol.Status))
}

// A LocalClient is a client of a node in the same process, for all goroutines: PutAll and GetAll without messages. It
// does by function calls what a Client with the algorithm Fast does by messages.
type LocalClient struct {
	host    Host
	e       *engine // only for the hash of keys and the partitions
	mu      sync.Mutex
	clock   *protocol.Clock // guarded by mu
	timeout time.Duration
}

// Local returns a client of a node in the same process. The caller closes the node. With a timeout of 0, calls end
// after 10 s.
func Local(h Host, timeout time.Duration) *LocalClient {
	c := &LocalClient{host: h, e: newEngine(Fast, randomID(), systemClock()), timeout: timeout}
	c.clock = c.e.clock
	seed, partitions := h.Table()
	c.e.setTable(seed, partitions)
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	return c
}

// A gathering waits for the answers of several partitions.
type gathering struct {
	mu   sync.Mutex // guards left, all, err, and what the answers change
	left int
	all  chan struct{} // closed with the last answer; nil: nobody waits
	err  error
}

func gather(n int) *gathering { return &gathering{left: n} }

// answered is called once for each answer, with mu held, and releases mu.
func (g *gathering) answered() {
	if g.left--; g.left == 0 && g.all != nil {
		close(g.all)
	}
	g.mu.Unlock()
}

// wait waits for all answers. Mostly they have come before the calls returned.
func (g *gathering) wait(ctx context.Context, until time.Time) error {
	g.mu.Lock()
	if g.left == 0 {
		g.mu.Unlock()
		return nil
	}
	g.all = make(chan struct{})
	g.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-g.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// over returns why a call gives up, nil before that.
func over(ctx context.Context, until time.Time) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case time.Now().After(until):
		return context.DeadlineExceeded
	}
	return nil
}

// PutAll does what Client.PutAll does.
func (c *LocalClient) PutAll(ctx context.Context, pairs []Pair) (Timestamp, error) {
	t := puts.Get().(*put)
	defer puts.Put(t)
	defer t.empty()
	if err := t.split(c.e, pairs); err != nil {
		return 0, err
	}
	until := time.Now().Add(c.timeout)
	for tries := 1; ; tries++ {
		ts, again, err := c.tryPut(ctx, until, t)
		if !again {
			return ts, err
		}
		if tries > quickTries {
			time.Sleep(pauseTime)
		}
	}
}

// puts have the memory of transactions that have ended, for those to come.
var puts = sync.Pool{New: func() any { return new(put) }}

// empty forgets keys and values.
func (t *put) empty() {
	for i := range t.parts {
		clear(t.parts[i].body.Parts)
	}
}

// tryPut tries with one timestamp. again: the transaction was refused, and a newer timestamp may succeed. Answers that
// come after it has given up find only what belongs to this try.
func (c *LocalClient) tryPut(ctx context.Context, until time.Time, t *put) (ts Timestamp, again bool, err error) {
	c.mu.Lock()
	ts = c.clock.Next(uint64(time.Now().UnixMilli()))
	c.mu.Unlock()
	flags := protocol.Flags(0)
	if len(t.parts) == 1 {
		flags = protocol.FlagOnePhase
	}
	g := gather(len(t.parts))
	newest, clock, refused := Timestamp(0), Timestamp(0), false
	prepared := func(s protocol.Status, n Timestamp) {
		g.mu.Lock()
		defer g.answered()
		switch s {
		case protocol.StatusOK:
			return
		case protocol.StatusClock:
			clock = n
		case protocol.StatusRefused:
		default:
			g.err = failed(s)
		}
		newest, refused = max(newest, n), true
	}
	for i := range t.parts {
		p := &t.parts[i]
		p.body.TS = ts
		c.host.Prepare(p.link.number, &p.body, flags, prepared)
	}
	if why := g.wait(ctx, until); why != nil {
		return 0, false, fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)
	}
	d := protocol.Transaction{TS: ts, Client: c.e.client}
	switch {
	case refused && len(t.parts) > 1:
		for i := range t.parts {
			c.host.Abort(t.parts[i].link.number, d, func(protocol.Status) {})
		}
		fallthrough
	case refused:
		c.mu.Lock()
		if clock != 0 {
			c.clock.Correct(uint64(time.Now().UnixMilli()), clock)
		}
		c.clock.Seen(newest)
		if newest == ts {
			c.clock.Renumber(c.e.stride)
		}
		c.mu.Unlock()
		if why := over(ctx, until); g.err == nil && why != nil {
			g.err = fmt.Errorf("%w (%w)", ErrUnavailable, why)
		}
		return 0, g.err == nil, g.err
	case len(t.parts) == 1:
		return ts, false, nil
	}
	done := gather(len(t.parts))
	committed := func(s protocol.Status) {
		done.mu.Lock()
		defer done.answered()
		if s != protocol.StatusOK {
			done.err = fmt.Errorf("%w: %v", ErrUnknownOutcome, s)
		}
	}
	for i := range t.parts {
		c.host.Commit(t.parts[i].link.number, d, committed)
	}
	if why := done.wait(ctx, until); why != nil {
		return 0, false, fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)
	}
	for i := 0; i < len(t.parts) && done.err == nil; i++ {
		c.host.Finished(t.parts[i].link.number, d)
	}
	return ts, false, done.err
}

// GetAll does what Client.GetAll does.
func (c *LocalClient) GetAll(ctx context.Context, keys [][]byte) ([]Value, error) {
	t := &get{}
	if err := t.sort(c.e, keys); err != nil {
		return nil, err
	}
	until := time.Now().Add(c.timeout)
	for {
		for i := range t.keys {
			k := &t.keys[i]
			*k = getKey{key: k.key, hash: k.hash, link: k.link}
			t.ask(i)
		}
		t.round, t.gone, t.buf = 1, false, nil
		err := c.round(ctx, until, t)
		if err == nil && !t.gone && len(t.keys) > 1 {
			for i := range t.keys {
				t.wantSiblings(&t.keys[i])
			}
			for i := range t.keys {
				if t.keys[i].want != 0 {
					t.ask(i)
				}
			}
			if t.round = 2; len(t.groups) > 0 {
				err = c.round(ctx, until, t)
			}
		}
		switch {
		case err != nil:
			return nil, err
		case !t.gone:
			return t.values(), nil
		}
		if why := over(ctx, until); why != nil {
			return nil, fmt.Errorf("%w (%w)", ErrUnavailable, why)
		}
	}
}

// round requests the keys in the groups.
func (c *LocalClient) round(ctx context.Context, until time.Time, t *get) error {
	for {
		err := c.askGroups(ctx, until, t)
		if err != nil || len(t.groups) == 0 {
			return err
		}
	}
}

// askGroups requests the groups once. Afterwards t.groups has the groups to request next.
func (c *LocalClient) askGroups(ctx context.Context, until time.Time, t *get) error {
	groups := t.groups
	t.groups = nil
	w := gather(len(groups))
	for _, g := range groups {
		q := &protocol.Get{}
		for _, i := range g.keys {
			q.Keys = append(q.Keys, protocol.Wanted{TS: t.keys[i].want, Key: t.keys[i].key})
		}
		c.host.Get(g.link.number, q, 0, func(n int, v *protocol.Version) {
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case v.State == protocol.StateGone:
				t.gone = true
			case v.State == protocol.StateNever && t.round == 2:
			default:
				t.set(&t.keys[g.keys[n]], v.State, v.TS, v.Content)
			}
		}, func(s protocol.Status) {
			w.mu.Lock()
			defer w.answered()
			switch {
			case s == protocol.StatusFull && len(g.keys) > 1:
				t.groups = append(t.groups, g.halves())
			case s != protocol.StatusOK:
				w.err = failed(s)
			case g.then != nil:
				t.groups = append(t.groups, *g.then)
			}
		})
	}
	if why := w.wait(ctx, until); why != nil {
		return fmt.Errorf("%w (%w)", ErrUnavailable, why)
	}
	return errors.Join(w.err, t.err)
}
