package sim

import (
	"slices"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/regions"
)

// An endpoint is one end of a connection.
type endpoint struct {
	d     *Domain
	w     *World
	other *endpoint
	peer  fabric.Peer

	sends, recvs *ledger.Side
	ops          []*op // of sends, in the same order
	err          error
	gone         bool // its process has ended
	waits        *op  // the Send that waits for a Recv of the peer, or nil
	timed        bool // an event is scheduled that checks the deadline of the oldest operation
	done         chan struct{}
}

// An op is a Read, Write or Send under way.
type op struct {
	e        *endpoint
	w        *ledger.Work
	units    []unit
	region   *regions.Region // the peer's region, once words have moved
	deadline time.Duration   // true time at which the operation fails
	freezes  bool            // a stopped initiator pauses it, as when a processor copies; otherwise it continues, as with a network card
	started  bool            // a Send only: it is on its way to the peer
	moved    bool            // all words have been moved, or the Send has been delivered
	bell     bool            // the peer is still to be notified
	acked    bool            // it completes once all earlier operations have
	err      error
}

func connect(a, b *Domain, addr string, ao, bo fabric.EndpointOptions) (*endpoint, *endpoint) {
	end := func(d, other *Domain, o fabric.EndpointOptions) *endpoint {
		e := &endpoint{
			d: d, w: d.w, peer: fabric.Peer{Addr: addr, Incarnation: other.nonce},
			sends: ledger.NewSide(ledger.Of(o.Send), o.Depth), recvs: ledger.NewSide(ledger.Of(o.Recv), o.Recvs),
			done: make(chan struct{}),
		}
		d.endpoints = append(d.endpoints, e)
		return e
	}
	x, y := end(a, b, ao), end(b, a, bo)
	x.other, y.other = y, x
	return x, y
}

// Post implements fabric.Endpoint.
func (e *endpoint) Post(w []fabric.WR) (int, error) {
	for i := range w {
		if e.err != nil {
			return i, e.err
		}
		if err := e.take(&w[i]); err != nil {
			return i, err
		}
	}
	return len(w), nil
}

func (e *endpoint) take(w *fabric.WR) error {
	if err := ledger.Check(w, limits); err != nil {
		return err
	}
	local, b, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
	if err != nil {
		return err
	}
	defer local.Release()
	work := ledger.Work{WR: *w}
	if w.Op == fabric.Recv {
		err := e.recvs.Take(work)
		if o := e.other.waits; err == nil && o != nil {
			e.other.waits = nil
			e.w.After(e.w.Delay(), o.deliver)
		}
		return err
	}
	if w.Flags&fabric.Inline != 0 {
		work.Inlined = slices.Clone(b)
	}
	if err := e.sends.Take(work); err != nil {
		return err
	}
	o := &op{e: e, w: &work, deadline: e.w.now + fabric.Timeout, freezes: e.w.one(2), bell: w.Flags&fabric.Notify != 0}
	e.ops = append(e.ops, o)
	e.time()
	if w.Op == fabric.Send {
		e.next()
		return nil
	}
	o.cut()
	e.w.After(e.w.Delay(), o.move)
	return nil
}

// time schedules the event that checks the deadline of the oldest operation.
func (e *endpoint) time() {
	if !e.timed && len(e.ops) > 0 {
		e.timed = true
		e.w.After(e.ops[0].deadline+1-e.w.now, e.late)
	}
}

// late ends the endpoint if its oldest operation has not completed in time. Time during which the initiator was
// stopped does not count.
func (e *endpoint) late() {
	e.timed = false
	switch n := e.d.n; {
	case e.err != nil || e.gone || len(e.ops) == 0:
	case e.ops[0].deadline >= e.w.now:
		e.time()
	case n.state != running:
		e.timed = true
		n.whenRunning(func() { e.w.After(e.w.Delay(), e.late) })
	default:
		e.end(fabric.ErrTimeout, fabric.ErrTimeout)
	}
}

// next starts Sends and notifications that have waited until earlier Writes were placed. A Send waits for earlier
// Sends, too.
func (e *endpoint) next() {
	for _, o := range e.ops {
		switch {
		case o.w.Op == fabric.Send && !o.started:
			o.started = true
			e.w.After(e.w.Delay(), o.deliver)
		case o.bell && o.moved:
			o.bell = false
			e.w.After(e.w.Delay(), o.ring)
		}
		if o.w.Op != fabric.Read && !o.moved {
			return
		}
	}
}

// ring notifies the peer.
func (o *op) ring() {
	switch e := o.e; {
	case !e.w.Reaches(e.d.n, e.other.d.n):
		if e.w.now < o.deadline {
			e.w.After(e.w.upTo(retry), o.ring)
		}
	case !e.other.gone:
		e.other.recvs.Queue().Notify()
	}
}

// retry is the longest time after which a lost packet is sent again, so that a short Cut is no more than a delay.
const retry = 100 * time.Millisecond

// deliver gives a Send to the peer's oldest Recv.
func (o *op) deliver() {
	e := o.e
	if e.err != nil || e.other.gone {
		return
	}
	if !e.w.Reaches(e.d.n, e.other.d.n) {
		e.w.After(1+e.w.upTo(retry), o.deliver)
		return
	}
	if e.other.recvs.Open() == 0 {
		e.waits = o // until the peer posts a Recv, or the deadline passes
		return
	}
	b := o.w.Inlined
	if b == nil {
		local, mem, err := e.d.regions.Own(o.w.Local, o.w.LOff, o.w.LLen)
		if err != nil {
			e.end(fabric.ErrAccess, fabric.ErrAccess) // closed since the operation was posted
			return
		}
		b = slices.Clone(mem)
		local.Release()
	}
	r := e.other.recvs.At(0)
	local, room, err := e.other.d.regions.Own(r.Local, r.LOff, r.LLen)
	if err != nil || len(room) < len(b) {
		local.Release()
		e.other.recvs.End(fabric.ErrAccess)
		e.end(fabric.ErrAccess, fabric.ErrAccess)
		return
	}
	copy(room, b)
	local.Release()
	e.other.recvs.Done(uint64(len(b)))
	o.arrived()
}

// arrived is called once all words have moved, or the Send is delivered. It schedules the acknowledgement.
func (o *op) arrived() {
	o.moved = true
	o.e.next()
	if o.e.w.one(o.e.w.faults.LoseOne) {
		o.e.end(fabric.ErrTimeout, fabric.ErrTimeout) // the completion is lost
		return
	}
	o.e.w.After(o.e.w.Delay(), o.ack)
}

// ack tells the initiator that the operation has succeeded or failed.
func (o *op) ack() {
	e := o.e
	if e.err != nil {
		return
	}
	if !e.w.Reaches(e.other.d.n, e.d.n) {
		e.w.After(1+e.w.upTo(retry), o.ack)
		return
	}
	o.acked = true
	for len(e.ops) > 0 && e.ops[0].acked {
		first := e.ops[0]
		if first.err != nil {
			e.end(first.err, first.err)
			return
		}
		e.ops = e.ops[1:]
		e.sends.Done(first.w.LLen)
	}
}

// end ends both ends of the connection, the other end when the news arrives there. The oldest operation fails with
// head.
func (e *endpoint) end(err, head error) {
	if e.err != nil || e.gone {
		return
	}
	e.err = err
	e.d.endpoints = slices.DeleteFunc(e.d.endpoints, func(x *endpoint) bool { return x == e })
	e.sends.End(head)
	e.recvs.End(fabric.ErrFlushed)
	e.ops = nil
	close(e.done)
	e.tell()
}

func (e *endpoint) tell() {
	e.w.After(e.w.Delay(), func() {
		switch {
		case e.other.err != nil:
		case e.w.Reaches(e.d.n, e.other.d.n):
			e.other.end(fabric.ErrPeer, fabric.ErrPeer)
		default:
			e.w.After(1+e.w.upTo(retry), e.tell)
		}
	})
}

// Peer implements fabric.Endpoint.
func (e *endpoint) Peer() fabric.Peer { return e.peer }

// Done implements fabric.Endpoint.
func (e *endpoint) Done() <-chan struct{} { return e.done }

// Err implements fabric.Endpoint.
func (e *endpoint) Err() error { return e.err }

// Close implements fabric.Endpoint.
func (e *endpoint) Close() error {
	e.end(fabric.ErrClosed, fabric.ErrFlushed)
	return nil
}
