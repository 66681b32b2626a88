package mem

import (
	"sync"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/words"
)

// An endpoint is one end of a connection.
type endpoint struct {
	// mu is the lock of the connection, shared by both ends. The locks of queues are taken while it is held.
	mu    *sync.Mutex
	d     *Domain
	other *endpoint
	peer  fabric.Peer

	sends, recvs *ledger.Side
	waiting      *time.Timer // runs while the Send at the head waits for a Recv; else nil
	waits        int         // the number of timers so far: a timer that was stopped too late compares it with its own number and finds that it is outdated
	err          error
	done         chan struct{} // closed once err is set
}

// connect makes both ends of a connection.
func connect(a, b *Domain, addr string, ao, bo fabric.EndpointOptions) (*endpoint, *endpoint) {
	lock := new(sync.Mutex)
	end := func(d, other *Domain, o fabric.EndpointOptions) *endpoint {
		return &endpoint{
			mu: lock, d: d, peer: fabric.Peer{Addr: addr, Incarnation: other.nonce},
			sends: ledger.NewSide(o.Send.(*ledger.Queue), o.Depth), recvs: ledger.NewSide(o.Recv.(*ledger.Queue), o.Recvs),
			done: make(chan struct{}),
		}
	}
	x, y := end(a, b, ao), end(b, a, bo)
	x.other, y.other = y, x
	return x, y
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

// take adds one work request, and carries out the operations that need not wait.
func (e *endpoint) take(w *fabric.WR) error {
	if err := ledger.Check(w, limits); err != nil {
		return err
	}
	local, b, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
	if err != nil {
		return err
	}
	work := ledger.Work{WR: *w}
	if w.Flags&fabric.Inline != 0 && e.sends.Open() > 0 {
		work.Inlined = make([]byte, len(b))
		words.Read(work.Inlined, b)
	}
	local.Release()
	if w.Op == fabric.Recv {
		err = e.recvs.Take(work)
	} else {
		err = e.sends.Take(work)
	}
	if err != nil {
		return err
	}
	if w.Op == fabric.Recv {
		e.other.run()
	} else if e.sends.Open() == 1 {
		e.run()
	}
	return nil
}

// run carries out operations in order, until one has to wait for a Recv.
func (e *endpoint) run() {
	for e.err == nil && e.sends.Open() > 0 {
		w := e.sends.At(0)
		if w.Op == fabric.Send && e.other.recvs.Open() == 0 {
			if e.waiting == nil {
				e.waits++
				n := e.waits
				e.waiting = time.AfterFunc(fabric.Timeout, func() { e.late(n) })
			}
			return
		}
		n := w.LLen
		if err := e.carryOut(w); err != nil {
			e.end(err)
			return
		}
		e.sends.Done(n)
	}
}

// carryOut carries out the operation at the head.
func (e *endpoint) carryOut(w *ledger.Work) error {
	local, b, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
	if err != nil {
		return fabric.ErrAccess // closed since the operation was posted
	}
	defer local.Release()
	if w.Inlined != nil {
		b = w.Inlined
	}
	if w.Op == fabric.Send {
		return e.send(b)
	}
	if w.LLen > 0 {
		want := fabric.RemoteRead
		if w.Op == fabric.Write {
			want = fabric.RemoteWrite
		}
		r, remote, err := e.other.d.regions.Reach(w.Remote, w.ROff, w.LLen, want)
		if err != nil {
			return err
		}
		if w.Op == fabric.Write {
			words.Write(remote, b)
		} else {
			words.Read(b, remote)
		}
		if err := r.Leave(); err != nil {
			return err
		}
	}
	if w.Flags&fabric.Notify != 0 {
		e.other.recvs.Queue().Notify()
	}
	return nil
}

var _ fabric.Reader = (*endpoint)(nil) // clients test for this interface, and work without it

// ReadNow implements fabric.Reader.
func (e *endpoint) ReadNow(dst []byte, k fabric.Key, off uint64) error {
	select {
	case <-e.done:
		return e.Err()
	default:
	}
	r, remote, err := e.other.d.regions.Reach(k, off, uint64(len(dst)), fabric.RemoteRead)
	if err != nil {
		return err
	}
	words.Read(dst, remote)
	return r.Leave()
}

// send gives bytes to the peer's oldest Recv.
func (e *endpoint) send(b []byte) error {
	if e.waiting != nil {
		e.waiting.Stop()
		e.waiting = nil
	}
	r := e.other.recvs.At(0)
	local, room, err := e.other.d.regions.Own(r.Local, r.LOff, r.LLen)
	if err != nil || len(room) < len(b) {
		local.Release()
		e.other.recvs.End(fabric.ErrAccess)
		return fabric.ErrAccess
	}
	words.Write(room[:len(b)], b)
	local.Release()
	e.other.recvs.Done(uint64(len(b)))
	return nil
}

// late ends the endpoint if the Send of timer n still waits for a Recv.
func (e *endpoint) late(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting != nil && e.waits == n {
		e.end(fabric.ErrTimeout)
	}
}

// end ends both ends of the connection. The oldest operation of this end fails with err, that of the other end with
// ErrPeer.
func (e *endpoint) end(err error) {
	if e.err != nil {
		return
	}
	e.finish(err, err)
	e.other.finish(fabric.ErrPeer, fabric.ErrPeer)
}

// finish completes all operations under way: the oldest fails with head, the others with ErrFlushed. The endpoint's
// error is err.
func (e *endpoint) finish(err, head error) {
	e.err = err
	if e.waiting != nil {
		e.waiting.Stop()
		e.waiting = nil
	}
	e.sends.End(head)
	e.recvs.End(fabric.ErrFlushed)
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
	if e.err == nil {
		e.finish(fabric.ErrClosed, fabric.ErrFlushed)
		e.other.finish(fabric.ErrPeer, fabric.ErrPeer)
	}
	return nil
}
