package tcp

import (
	"net"
	"sync"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/greeting"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/words"
)

// An endpoint is one end of a connection. One goroutine writes frames and another reads them. Together they send this
// end's operations, and are the agent that carries out the peer's.
type endpoint struct {
	d      *Domain
	conn   net.Conn
	peer   fabric.Peer
	budget int // most answers that may be queued for the peer

	// mu guards the fields below. The locks of queues are taken while it is held; nothing is written to the
	// connection while it is held.
	mu           sync.Mutex
	work         sync.Cond // signals that the writer has something to write, or that the endpoint has ended
	sends, recvs *ledger.Side
	sent         int       // the number of operations under way whose frames have been or are being written: the oldest ones
	held         bool      // the last of them is a Send; no operation is sent before its answer
	answers      []answer  // queued for the writer, in order
	arrived      []byte    // a Send of the peer that has found no Recv; nil for none
	heard        time.Time // when an operation last made progress, or the first one was posted
	timer        *time.Timer
	err          error

	done chan struct{} // closed once err is set
}

// An answer is the reply to an operation of the peer.
type answer struct {
	read    bool
	refused bool
	k       fabric.Key // of a Read
	off, n  uint64
}

func newEndpoint(d *Domain, conn net.Conn, g greeting.Greeting, addr string, o fabric.EndpointOptions) (*endpoint, error) {
	e := &endpoint{
		d: d, conn: conn, peer: fabric.Peer{Addr: addr, Incarnation: g.Nonce}, budget: g.Depth,
		sends: ledger.NewSide(ledger.Of(o.Send), greeting.Depth(o)), recvs: ledger.NewSide(ledger.Of(o.Recv), o.Recvs), done: make(chan struct{}),
	}
	e.work.L = &e.mu
	if err := d.open.Keep(e); err != nil {
		return nil, err
	}
	go e.write()
	go e.read()
	return e, nil
}

func (e *endpoint) Post(w []fabric.WR) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
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
	work := ledger.Work{WR: *w}
	if w.Flags&fabric.Inline != 0 {
		work.Inlined = make([]byte, len(b))
		words.Read(work.Inlined, b)
	}
	local.Release()
	if w.Op == fabric.Recv {
		if err := e.recvs.Take(work); err != nil {
			return err
		}
		e.deliver()
		return nil
	}
	if err := e.sends.Take(work); err != nil {
		return err
	}
	if e.sends.Open() == 1 {
		e.heard = time.Now()
		e.watch()
	}
	e.work.Signal()
	return nil
}

// watch starts the timer that checks heard while operations are under way.
func (e *endpoint) watch() {
	if e.timer != nil {
		return
	}
	e.timer = time.AfterFunc(fabric.Timeout/4, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.timer = nil
		switch {
		case e.err != nil || e.sends.Open() == 0:
		case time.Since(e.heard) >= fabric.Timeout:
			e.end(fabric.ErrTimeout, fabric.ErrTimeout)
		default:
			e.watch()
		}
	})
}

// progress records that some bytes of an operation have been sent or received.
func (e *endpoint) progress() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = time.Now()
}

// complete completes the oldest operation.
func (e *endpoint) complete() {
	w := e.sends.At(0)
	if w.Op == fabric.Send {
		e.held = false
		e.work.Signal()
	}
	e.sent--
	e.heard = time.Now()
	e.sends.Done(w.LLen)
}

// deliver gives a Send that has arrived to the oldest Recv, if there are both.
func (e *endpoint) deliver() {
	if e.arrived == nil || e.recvs.Open() == 0 || e.err != nil {
		return
	}
	r := e.recvs.At(0)
	local, room, err := e.d.regions.Own(r.Local, r.LOff, r.LLen)
	if err != nil || len(room) < len(e.arrived) {
		local.Release()
		e.recvs.End(fabric.ErrAccess)
		e.arrived = nil
		e.answer(answer{refused: true})
		return // the peer ends the connection when it receives the answer
	}
	n := len(e.arrived)
	words.Write(room[:n], e.arrived)
	local.Release()
	e.arrived = nil
	e.recvs.Done(uint64(n))
	e.answer(answer{})
}

// answer queues an answer for the writer.
func (e *endpoint) answer(a answer) {
	e.answers = append(e.answers, a)
	e.work.Signal()
}

// end ends the endpoint. Its oldest operation fails with head. The peer notices because the connection is closed.
func (e *endpoint) end(err, head error) {
	if e.err != nil {
		return
	}
	e.err = err
	e.sends.End(head)
	e.recvs.End(fabric.ErrFlushed)
	e.answers, e.arrived = nil, nil
	e.work.Broadcast()
	go e.conn.Close() // Close may block until the peer has taken the TLS alert
	close(e.done)
}

func (e *endpoint) Peer() fabric.Peer     { return e.peer }
func (e *endpoint) Done() <-chan struct{} { return e.done }

func (e *endpoint) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *endpoint) Close() error {
	e.d.open.Forget(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(fabric.ErrClosed, fabric.ErrFlushed)
	return nil
}
