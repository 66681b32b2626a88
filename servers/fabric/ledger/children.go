package ledger

import (
	"io"
	"sync"

	"flashdbm/servers/fabric"
)

// Children are what a domain has to close when it is closed itself.
type Children struct {
	mu     sync.Mutex // guards what follows; no other lock is taken while it is held
	all    map[io.Closer]bool
	closed bool
}

// Keep remembers something. If the domain is closed already, it closes that instead and returns ErrClosed.
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

// Forget is for what has closed itself.
func (c *Children) Forget(child io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.all, child)
}

// Close closes everything, and afterwards whatever is given to Keep. Queues come last: what else ends tells them.
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
