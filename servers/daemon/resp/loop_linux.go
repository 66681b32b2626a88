package resp

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"flashdbm/servers/hydra"
	"flashdbm/servers/wire"
)

// A loop is described in loop.go.
type loop struct {
	s      *Server
	store  beginner
	poll   int // of epoll: events carry a slot
	alarm  int // an eventfd that ends a sleep
	done   sync.WaitGroup
	asleep atomic.Bool
	passed atomic.Pointer[conn] // a stack of connections for the loop: new ones, and those whose requests have ended
	ending atomic.Bool          // the server is closing: no more input
	ended  atomic.Bool          // the loop is to end

	// Used by the loop's goroutine only.
	slots  []*conn
	free   []int32
	begun  bool // the shards have to look at new requests
	events [128]unix.EpollEvent
}

const slotAlarm = -1

// newLoop returns the loop of a server, nil if it cannot have one.
func newLoop(s *Server) *loop {
	b, ok := s.store.(beginner)
	if !ok || !b.Begins() || s.o.TLS != nil || s.o.Transactions != nil {
		return nil
	}
	l := &loop{s: s, store: b}
	var err error
	if l.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil
	}
	if l.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		// Edge-triggered: each ring is one event, and nothing has to be read from the eventfd.
		err = l.watch(l.alarm, unix.EPOLLIN|unix.EPOLLET, slotAlarm)
	}
	if err != nil {
		unix.Close(l.poll)
		unix.Close(l.alarm)
		return nil
	}
	l.done.Go(l.run)
	return l
}

// adopt returns the socket of a connection for the loop, nil if a goroutine has to serve it.
func (l *loop) adopt(nc net.Conn) *raw { return unpoll(nc) }

// close ends the loop, which has no connections any more.
func (l *loop) close() {
	l.ended.Store(true)
	l.ring()
	l.done.Wait()
	unix.Close(l.poll)
	unix.Close(l.alarm)
}

// stop tells the loop that the server is closing.
func (l *loop) stop() {
	l.ending.Store(true)
	l.ring()
}

// ring ends the loop's sleep, or its next one: the loop does not look for what stop and close say before it sleeps.
func (l *loop) ring() { unix.Write(l.alarm, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// push passes a connection to the loop. Any goroutine may call it.
func (l *loop) push(c *conn) {
	for {
		c.lp.next = l.passed.Load()
		if l.passed.CompareAndSwap(c.lp.next, c) {
			break
		}
	}
	if l.asleep.CompareAndSwap(true, false) {
		l.ring()
	}
}

func (l *loop) watch(fd int, events uint32, slot int32) error {
	return unix.EpollCtl(l.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: slot})
}

// run is the loop's goroutine. While it sleeps, Go's scheduler counts it among those in a system call. With as many
// places for running goroutines as there are processors, a sync and this sleep hold all of them, and a thread of the
// runtime takes one of them away, again and again. A further place prevents that: 50 clients' durable SETs take 17 µs
// of processor time each instead of 21.
func (l *loop) run() {
	wire.AddProcessors(1)
	defer wire.AddProcessors(-1)
	for !l.ended.Load() {
		l.take()
		if l.s.ctx.Err() != nil {
			l.withdraw()
		}
		for _, e := range l.events[:l.wait()] {
			if e.Fd == slotAlarm {
				continue
			}
			if c := l.slots[e.Fd]; c != nil {
				l.readable(c)
			}
		}
		if l.begun {
			l.begun = false
			l.store.Serve()
		}
	}
}

// wait returns the number of events. If there are none, and nothing else is to be done, it sleeps.
func (l *loop) wait() int {
	if n, _ := unix.EpollWait(l.poll, l.events[:], 0); n > 0 || l.begun {
		return max(n, 0)
	}
	// The shard may have made a goroutine ready that reads from the file for a request. It runs on this thread now, rather
	// than on another one that has to be woken for it.
	runtime.Gosched()
	l.asleep.Store(true)
	defer l.asleep.Store(false)
	if l.passed.Load() != nil {
		return 0
	}
	n, _ := unix.EpollWait(l.poll, l.events[:], -1)
	return max(n, 0) // -1: a signal came
}

// take serves the connections that were passed to the loop, in the order in which they were.
func (l *loop) take() {
	var first *conn
	for c := l.passed.Swap(nil); c != nil; {
		c, c.lp.next, first = c.lp.next, first, c
	}
	for c := first; c != nil; {
		next := c.lp.next
		c.lp.next = nil
		if c.lp.begun == nil {
			l.enter(c)
		} else {
			c.lp.busy = false
			l.answer(c)
		}
		c = next
	}
}

// enter begins to serve a connection.
func (l *loop) enter(c *conn) {
	if n := len(l.free); n > 0 {
		c.lp.slot, l.free = l.free[n-1], l.free[:n-1]
	} else {
		c.lp.slot = int32(len(l.slots))
		l.slots = append(l.slots, nil)
	}
	l.slots[c.lp.slot] = c
	c.in.src, c.out.dst = input{c.s, c.lp.raw}, c.lp.raw
	c.lp.begun = hydra.NewBegun(func() { l.push(c) })
	c.lp.deaf = true
	l.listen(c)
}

// listen waits for more input, unless the server is closing.
func (l *loop) listen(c *conn) {
	if l.ending.Load() {
		l.end(c)
		return
	}
	if c.lp.deaf {
		if l.watch(c.lp.raw.fd, unix.EPOLLIN, c.lp.slot) != nil {
			l.end(c)
			return
		}
		c.lp.deaf = false
	}
}

// ignore stops watching the socket.
func (l *loop) ignore(c *conn) {
	if !c.lp.deaf {
		c.lp.deaf = true
		unix.EpollCtl(l.poll, unix.EPOLL_CTL_DEL, c.lp.raw.fd, nil)
	}
}

// leave takes the connection out of the loop.
func (l *loop) leave(c *conn) {
	l.ignore(c)
	l.slots[c.lp.slot] = nil
	l.free = append(l.free, c.lp.slot)
}

// end ends the connection.
func (l *loop) end(c *conn) {
	l.leave(c)
	c.in.release()
	c.lp.raw.free()
	c.s.gone(c)
}

// move moves the connection to a goroutine, which begins with first, and ends with err if that is not nil.
func (l *loop) move(c *conn, first func(), err error) {
	l.leave(c)
	nc := c.lp.raw.take()
	c.s.mu.Lock()
	c.net = nc
	switch { // the server may have told the socket that it had before
	case c.s.ctx.Err() != nil:
		nc.Close()
	case c.s.closing:
		nc.SetReadDeadline(time.Now())
	}
	c.s.mu.Unlock()
	go func() {
		defer c.s.gone(c)
		c.goOn(first, err)
	}()
}

// readable reads from a connection, and serves what has arrived.
func (l *loop) readable(c *conn) {
	if c.lp.busy {
		l.ignore(c) // until its requests have ended
		return
	}
	switch err := c.in.fill(); {
	case err == nil:
		l.serve(c)
	case err == errAgain:
	case isAnswered(err):
		l.move(c, nil, err)
	default:
		l.end(c)
	}
}

// serve serves the commands that have arrived, and writes the answers. It stops where the connection has to wait.
func (l *loop) serve(c *conn) {
	for {
		more, here := l.commands(c)
		switch {
		case !here:
			return
		case len(c.batch.list) > 0:
			c.lp.busy, l.begun = true, true
			l.store.Begin(c.lp.begun, c.batch.list)
			return
		case !l.send(c):
			return
		case !more:
			l.listen(c)
			return
		}
	}
}

// commands runs commands up to one that needs the batch to end. more is true if it has stopped because answers have to
// be written first, so that other commands may be left. here is false if the connection has left the loop.
func (l *loop) commands(c *conn) (more, here bool) {
	for !c.quit {
		if len(c.out.out) >= outputFlush {
			return true, true
		}
		args := c.lp.held
		if c.lp.held = nil; args == nil {
			var ok bool
			var err error
			args, ok, err = c.in.next()
			if err != nil || !ok && c.in.exceeds(plainArgs, plainArg) { // no longError: its argument exceeds before it is there
				l.move(c, nil, err)
				return false, false
			}
			if !ok {
				return false, true
			}
			if len(args) == 0 {
				continue
			}
		}
		switch c.turn(args) {
		case turnNow:
			c.do(args)
		case turnLater:
			c.lp.held = args
			return true, true
		case turnAlone:
			l.move(c, func() { c.do(args) }, nil)
			return false, false
		}
	}
	return false, true
}

// answer answers the batch, which has ended, and goes on. Answers that are long, or have to be asked for again, are left
// to a goroutine.
func (l *loop) answer(c *conn) {
	size := 0
	for i := range c.batch.list {
		r := &c.batch.list[i]
		if size += len(r.Item.Value); size > outputFlush || r.Incomplete() {
			l.move(c, c.answerBatch, nil)
			return
		}
	}
	for i := range c.batch.list {
		c.answer(&c.batch.list[i], c.batch.answers[i])
	}
	c.batch.reset()
	l.serve(c)
}

// send writes the answers. It returns false if the connection has left the loop.
func (l *loop) send(c *conn) bool {
	if out := c.out.out; len(out) > 0 {
		n, err := c.lp.raw.move(&c.lp.raw.out, out)
		c.s.stats.out.Add(int64(n))
		if err != nil && err != errAgain {
			l.end(c)
			return false
		}
		if n < len(out) { // the client is slow, or asks for much
			c.out.out = out[:copy(out, out[n:])]
			l.move(c, nil, nil)
			return false
		}
		c.out.sent()
	}
	if c.quit {
		l.end(c)
	}
	return !c.quit
}

// withdraw gives up all requests under way.
func (l *loop) withdraw() {
	for _, c := range l.slots {
		if c != nil && c.lp.busy {
			l.store.Withdraw(c.lp.begun, context.Cause(l.s.ctx))
		}
	}
}
