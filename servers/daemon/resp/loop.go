package resp

import (
	"strings"

	"flashdbm/servers/hydra"
)

// A loop is one goroutine that serves many connections, as the single thread of Redis does: it reads what has arrived
// on all of them, has the shards look at all commands at once, and writes the answers as requests end. That saves two
// switches between goroutines, a read that finds nothing, and a visit of the shard for each command.
//
// Invariants:
//
//  1. The loop never waits, except for events. So no connection delays another one by more than its own work. What may
//     wait, or may take long, is left to a goroutine: a connection begins in the loop, and the first command that is
//     not plain (see turn) moves it to a goroutine of its own, for good. Long values move it too, and so do answers
//     that a client does not read.
//  2. A connection in the loop is used by the loop's goroutine only. While it waits for its requests, nothing else of it
//     is served. So its answers are in order, and the input that the requests refer to stays where it is.
//  3. Requests end in any goroutine, which passes the connection to the loop. The loop says that it sleeps before it
//     looks for such connections for the last time; whoever passes one looks afterwards whether the loop sleeps, and
//     then wakes it. So no answer is left unsent.
//  4. A write is answered when its request has ended, as where a goroutine serves the connection: the loop knows nothing
//     of durability.
//
// Only a store whose shards are in this process can begin requests without waiting, and only on Linux there is a loop.

// A beginner is a Store that can begin requests without waiting for them; *hydra.Client is one, if Begins.
type beginner interface {
	Begins() bool
	Begin(b *hydra.Begun, list []hydra.Request)
	Serve()
	Withdraw(b *hydra.Begun, why error)
}

// looped is what the loop knows of a connection.
type looped struct {
	raw   *raw // the socket; nil: the connection was never in the loop
	slot  int32
	busy  bool         // its requests are under way
	deaf  bool         // its socket is not watched
	held  [][]byte     // a command that is to be run after the batch
	begun *hydra.Begun // the batch
	next  *conn        // in the stack of connections that were passed to the loop
}

// Limits of plain commands.
const (
	plainArgs = 16
	plainArg  = 32 << 10 // bytes of an argument
)

// How the loop runs a command.
type turn uint8

const (
	turnNow   turn = iota // at once
	turnLater             // after the batch
	turnAlone             // in a goroutine
)

// turn tells how the loop runs a command. Plain commands are those that only add a request to the batch, and those that
// are prompt. SET with the option GET reads first, and then waits. CLIENT LIST takes milliseconds with many clients.
func (c *conn) turn(args [][]byte) turn {
	x := c.find(args)
	if x == nil || !(x.queued && c.known || x.prompt) || len(args) > plainArgs {
		return turnAlone
	}
	for i, a := range args[1:] {
		if len(a) > plainArg || i >= 2 && x.queued && is(a, "GET") || i == 0 && x.prompt && is(a, "LIST") {
			return turnAlone
		}
	}
	// While there is a batch, only what certainly joins it: an error, for example, has to be answered in order.
	b := &c.batch
	if len(b.list) > 0 && (!x.sure(args) || b.full(hashOf(args[1]), !strings.HasPrefix(x.flags, "readonly"))) {
		return turnLater
	}
	return turnNow
}

// sure reports whether the command adds a request to the batch, whatever its arguments are.
func (x *command) sure(args [][]byte) bool {
	return x.queued && (len(args) == x.arity || len(args) == -x.arity) && len(args) <= 3 && x.name != "incrby" && x.name != "decrby"
}
