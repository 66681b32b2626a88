package hydra

import (
	"fmt"
	"sync/atomic"

	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/wire"
)

// A call is a request with all its tries, until it is answered. Once submitted, only the engine uses it; once its
// waiter's left has reached 0, only its caller does.
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
	dst    []byte // the value is appended to dst

	deadline int64 // by the engine's clock; 0 until a Tick has seen the call
	waiter   *waiter
	internal func(*engine, *call, wire.Message) // called instead of waking a waiter

	line *line // in a local client: the line of the call's shard

	// Fields of the engine.
	shard     *shard // to which the call was routed
	conn      wire.Conn
	sent      int64  // when the last try that asks for a lease was sent
	posted    int64  // when the last try was sent
	sentWall  uint64 // number of suspensions before sent
	number    uint64 // of a write; 0 before its first try
	slot      int    // in the table of the engine or the line; -1: none
	abandoned bool   // the caller has given up
	tries     int
	many      bool     // one of several calls of its caller: may be a part of a BATCH
	parts     []uint64 // of a BATCH: the ids of its calls
	reading   *pointer // set while a Read is under way

	// Results for the caller.
	err       error
	out       []byte // dst and the value, or the body of an answer to SCAN
	version   uint64
	expires   uint64
	itemFlags protocol.ItemFlags
	sum       int64
	outFlags  protocol.Flags

	next         *call // in the stack of submitted calls
	older, newer *call // in the engine's list of calls with a waiter
}

// A waiter is a caller that waits for one or more calls.
type waiter struct {
	left  atomic.Int32
	token chan struct{} // capacity 1: check again, or drive
	waits bool          // it does not drive itself
	// The caller of a local client sets sleeps before its last check of left. The goroutine that brings left to 0
	// reads sleeps after that.
	sleeps atomic.Bool
	ended  func() // of a Begun: called instead of waking a caller
}

func (w *waiter) done() bool { return w.left.Load() == 0 }

// wake makes the waiter check again. An unneeded token costs one check.
func (w *waiter) wake() {
	select {
	case w.token <- struct{}{}:
	default:
	}
}

// request returns the encoded form of the call.
func (c *call) request(oldest uint64) protocol.Request {
	return protocol.Request{
		Op: c.op, Flags: c.flags, Number: c.number, Oldest: oldest, Expiry: c.expiry, Operand: c.arg,
		ItemFlags: c.item, Key: c.key, Value: c.value,
	}
}

// decode decodes an answer into the call. It returns the item of a GET; the item's value is a part of body. lasting:
// body is not reused, so the value needs no copy.
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

// settle ends the call of a local client. The caller owns the call afterwards.
func (c *call) settle(err error) {
	c.err = err
	c.waiter.settle()
}

// settle counts one call as done. Afterwards the waiter may belong to its
// caller again.
func (w *waiter) settle() {
	if w.left.Add(-1) != 0 {
		return
	}
	if w.ended != nil {
		w.ended()
	} else if w.sleeps.Load() {
		w.wake()
	}
}

// unanswered returns the error of a call of a local client that was given up.
func (c *call) unanswered(why error) error { return unanswered(c.op, why) }

func unanswered(op protocol.Op, why error) error {
	if op.IsWrite() {
		return fmt.Errorf("%w (%w)", ErrUnknownOutcome, why)
	}
	return fmt.Errorf("%w (%w)", ErrUnavailable, why)
}
