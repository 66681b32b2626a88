package hydra

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A Host is a node of this process, such as a machine.Node.
type Host interface {
	// Map returns the map of shards. All of them are the Host's.
	Map() protocol.Map
	// Join gives a shard a line. serve makes the shard check the line: it returns after the line's requests have been
	// served, or when another goroutine will serve them without further calls. Any goroutine may call serve.
	Join(shard uint32, l wire.Line) (serve func(), err error)
}

// Local returns a client of a node in this process. Its calls are function calls: a caller whose shard sleeps serves
// the shard itself, so neither has to be woken. Of the options only Timeout is used. The caller closes the node after
// the client.
func Local(h Host, o *Options) (*Client, error) {
	c := newClient(o)
	m := h.Map()
	c.e.setMap(m)
	c.lines = map[uint32]*line{}
	for _, p := range m.Shards {
		l := &line{}
		serve, err := h.Join(p.Shard, l)
		if err != nil {
			c.closeLines()
			return nil, fmt.Errorf("hydra: shard %d: %w", p.Shard, err)
		}
		l.serve = serve
		c.lines[p.Shard], c.only = l, l
	}
	if len(c.lines) > 1 {
		c.only = nil
	}
	c.circle, c.seed = c.e.circle, m.Seed
	go c.keepLines()
	return c, nil
}

func (c *Client) closeLines() {
	for _, l := range c.lines {
		l.Close()
	}
}

// keepLines ends calls that take too long.
func (c *Client) keepLines() {
	defer close(c.kept)
	t := time.NewTicker(idleTick)
	defer t.Stop()
	for {
		select {
		case <-c.ctx.Done():
			c.closeLines()
			return
		case now := <-t.C:
			for _, l := range c.lines {
				l.expire(now, c.o.Timeout)
			}
		}
	}
}

// localYields is how often a caller whose call is not done at once yields before it sleeps: the goroutine that serves
// the shard answers within a few microseconds, unless the answer waits for the file. 0: each such caller costs a
// wake-up. Larger: the caller keeps a processor busy.
const localYields = 2

// runLocal passes calls to their shards and returns when all are done.
func (c *Client) runLocal(ctx context.Context, w *waiter, calls []*call) {
	w.left.Store(int32(len(calls)))
	w.sleeps.Store(false)
	c.handed.Add(uint64(len(calls)))
	for _, x := range calls {
		x.line = c.lineOf(x)
	}
	eachLine(calls, func(l *line) { l.hand(calls) })
	w.await(ctx, func() { eachLine(calls, func(l *line) { l.withdraw(calls, context.Cause(ctx)) }) })
}

// await returns when left is 0. If the context ends, it calls withdraw, which makes that happen soon.
func (w *waiter) await(ctx context.Context, withdraw func()) {
	for tries := 0; !w.done(); tries++ {
		if tries < localYields {
			runtime.Gosched()
			continue
		}
		w.sleeps.Store(true)
		if w.done() {
			return
		}
		select {
		case <-w.token: // possibly a token of an earlier use of the waiter
		case <-ctx.Done():
			withdraw()
			ctx = context.Background() // the remaining calls are being answered
		}
	}
}

// lineOf returns the line of the shard that owns the call's key.
func (c *Client) lineOf(x *call) *line {
	if c.only != nil {
		return c.only
	}
	if x.op != protocol.OpScan {
		x.hash = circle.Hash(c.seed, x.key)
	}
	owner, _ := c.circle.Owner(x.hash)
	return c.lines[owner]
}

// eachLine calls do once for each line of the calls.
func eachLine(calls []*call, do func(*line)) {
	for i, x := range calls {
		if i == 0 || !slices.ContainsFunc(calls[:i], func(y *call) bool { return y.line == x.line }) {
			do(x.line)
		}
	}
}
