package ledger

import (
	"io"
	"sync"

	"flashdbm/servers/fabric"
)

// Children are the objects that a domain closes when the domain itself is closed.
type Children struct {
	mu     sync.Mutex // guards the fields below; no other lock is taken while it is held
	all    map[io.Closer]bool
	closed bool
}

// Keep adds a child. If Close was called before, Keep closes the child instead and returns ErrClosed.
func (c *Children) Keep(child io.Closer) error {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		if c.all == nil {
			c.all = map[io.Closer]bool{}
		}
		c.all[child] = true
	}
	c.mu.Unlock()
	if closed {
		child.Close()
		return fabric.ErrClosed
	}
	return nil
}

// Forget removes a child that has closed itself.
func (c *Children) Forget(child io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, child)
}

// Close closes all children, and every later child that is given to Keep. Queues are closed last, because endpoints
// that end push completions to them.
func (c *Children) Close() {
	c.mu.Lock()
	c.closed = true
	all := c.all
	c.all = nil
	c.mu.Unlock()
	for child := range all {
		if q, ok := child.(fabric.Queue); ok {
			defer q.Close()
			continue
		}
		child.Close()
	}
}
