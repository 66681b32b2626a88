package hydra

import (
	"errors"

	"flashdbm/servers/hydra/protocol"
)

// A Begun is the memory of requests that a caller has begun and does not wait for. It is used for one list at a time.
type Begun struct {
	parts []*parts
	w     waiter
}

// NewBegun returns a Begun. When all requests of a list have ended, done is called, by Begin, by Serve, or by any
// goroutine that serves a shard. It must neither block nor call the client.
func NewBegun(done func()) *Begun { return &Begun{w: waiter{ended: done}} }

// Begins reports whether Begin and Serve may be called: the shards are in this process.
func (c *Client) Begins() bool { return c.lines != nil }

// Begin begins requests, which Serve, called by any goroutine, passes to their shards: until then nothing is done.
func (c *Client) Begin(b *Begun, list []Request) {
	for i, p := range b.parts {
		if p.given {
			b.parts[i] = &parts{place: -1, waiter: &b.w}
		}
	}
	used := c.part(&b.parts, &b.w, list)
	b.w.left.Store(int32(used) + 1)
	for _, p := range b.parts[:used] {
		p.begun()
	}
	b.w.settle()
}

// Serve makes the shards look at what was begun.
func (c *Client) Serve() {
	for _, l := range c.lines {
		if l.queued.Load() > 0 {
			l.serve()
		}
	}
}

// Withdraw gives up those requests of b that the shards have not answered. Then the end of all is near.
func (c *Client) Withdraw(b *Begun, why error) {
	for _, p := range b.parts {
		if p.line != nil {
			p.withdraw(why)
		}
	}
}

// Incomplete reports whether the request has ended without its value, which another call has to get: it is in parts,
// or has no room in an answer.
func (r *Request) Incomplete() bool {
	return r.Kind == Get && (errors.Is(r.Err, ErrTooLarge) || r.Item.flags&protocol.ItemManifest != 0)
}
