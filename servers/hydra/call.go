package hydra

import (
	"fmt"
	"sync/atomic"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A call is a request until it is answered, over all its tries. The engine alone uses it once it was submitted; when left of its waiter
// has reached 0, its caller alone.
type call struct {
	op     protocol.Op
	flags  protocol.Flags
	key    []byte
	value  []byte
	expiry uint64
	arg    uint64 // the operand
	item   protocol.ItemFlags
	body   []byte // of requests that are encoded already: SCAN, RENEW, MAP, EXTENT
	hash   uint64
	dst    []byte // the value is appended to it

	deadline int64 // by the engine's clock; 0 until a Tick has seen the call
	waiter   *waiter
	internal func(*engine, *call, wire.Message) // called instead of waking somebody

	line *line // of a local client: that the call goes to

	// The engine's.
	shard     *shard // that it was routed to
	conn      wire.Conn
	sent      int64
	posted    int64  // when the last try was sent
	sentWall  uint64 // suspensions before that
	number    uint64 // of a write, 0 before its first try
	slot      int    // in the engine's table, or the line's; -1
	abandoned bool   // the caller has gone
	tries     int
	many      bool     // it is one of several of its caller, and may be a part of a BATCH
	parts     []uint64 // of a BATCH: the ids of its calls
	reading   *pointer // while a Read is under way

	// What the caller gets.
	err       error
	out       []byte // dst and the value, or the body of an answer to SCAN
	version   uint64
	expires   uint64
	itemFlags protocol.ItemFlags
	sum       int64
	outFlags  protocol.Flags

	next         *call // in the stack of calls that were submitted
	older, newer *call // in the engine's list of calls that somebody waits for
}

// A waiter is a caller that waits for one or more calls.
type waiter struct {
	left  atomic.Int32
	token chan struct{} // of one: look again, or drive
	waits bool          // it does not drive itself
	// sleeps is set by the caller of a local client before it looks at left for the last time. Who brings left to 0 looks at sleeps after it.
	sleeps atomic.Bool
}

func (w *waiter) done() bool { return w.left.Load() == 0 }

// wake makes the waiter look again. A token that it does not need costs it one look.
func (w *waiter) wake() {
	select {
	case w.token <- struct{}{}:
	default:
	}
}

// request is what the call says on the wire.
func (c *call) request(oldest uint64) protocol.Request {
	return protocol.Request{
		Op: c.op, Flags: c.flags, Number: c.number, Oldest: oldest, Expiry: c.expiry, Operand: c.arg,
		ItemFlags: c.item, Key: c.key, Value: c.value,
	}
}

// decode takes what an answer says. The item is that of a GET; its value is the body's. lasting: the body stays as it is, so the value needs
// no copy.
func (c *call) decode(status protocol.Status, flags protocol.Flags, body []byte, lasting bool) (i protocol.Item, err error) {
	switch {
	case c.op.IsWrite():
		if len(body) == 0 && status != protocol.StatusOK {
			return i, nil
		}
		var w protocol.Written
		if err := w.Parse(body); err != nil {
			return i, err
		}
		c.version, c.sum = w.Version, w.Sum
	case status != protocol.StatusOK:
	case c.op == protocol.OpGet:
		if err := i.Parse(flags, body); err != nil {
			return i, err
		}
		c.version, c.expires, c.itemFlags = i.Version, i.Expiry, i.ItemFlags
		if c.out = i.Value; !lasting || c.dst != nil {
			c.out = append(c.dst, i.Value...)
		}
	case c.op == protocol.OpScan:
		if _, _, err := protocol.CheckScan(body); err != nil {
			return i, err
		}
		c.outFlags = flags
		c.out = append(c.dst, body...)
	}
	return i, nil
}

// settle ends the call of a local client. Nothing of it is looked at afterwards.
func (c *call) settle(err error) {
	c.err = err
	c.waiter.settle()
}

// settle counts one off. Nothing of what has waited is looked at afterwards.
func (w *waiter) settle() {
	if w.left.Add(-1) == 0 && w.sleeps.Load() {
		w.wake()
	}
}

// unanswered is the error of a call of a local client that was given up.
func (c *call) unanswered(why error) error { return unanswered(c.op, why) }

func unanswered(op protocol.Op, why error) error {
	if op.IsWrite() {
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)
	}
	return fmt.Errorf("%w (%w)", ErrUnavailable, why)
}
