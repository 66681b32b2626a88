package hydra

import (
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

	// The engine's.
	shard     *shard // that it was routed to
	conn      wire.Conn
	sent      int64
	sentWall  uint64 // suspensions before that
	number    uint64 // of a write, 0 before its first try
	slot      int    // in the engine's table; -1
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
