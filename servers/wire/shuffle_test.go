package wire

import (
	"context"
	"errors"
	"math/rand/v2"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// shuffle is a fabric inside one thread, for tests that decide when things happen. When the test calls step, one word
// of an operation is moved, in any order. Until an operation completes, any of its words may be moved again, with the
// present content of its source. Completions of an endpoint come in the order of its posts. This is all that package
// fabric promises.
type shuffle struct {
	rnd       *rand.Rand
	regions   map[uint64]*shuffleRegion
	endpoints []*shuffleEndpoint
	listen    chan *shuffleIncoming
	nextID    uint64
}

func newShuffle(seed uint64) *shuffle {
	return &shuffle{rnd: rand.New(rand.NewPCG(seed, 7)), regions: map[uint64]*shuffleRegion{}, listen: make(chan *shuffleIncoming, 1)}
}

type shuffleRegion struct {
	f      *shuffle
	b      []byte
	key    fabric.Key
	access fabric.Access
	closed bool
}

func (r *shuffleRegion) Bytes() []byte   { return r.b }
func (r *shuffleRegion) Key() fabric.Key { return r.key }
func (r *shuffleRegion) Fence() error    { r.closed = true; return nil }
func (r *shuffleRegion) Close() error    { r.closed = true; return nil } // the garbage collector frees it

func (f *shuffle) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	f.nextID++
	r := &shuffleRegion{f: f, b: make([]byte, (n+7)&^7), access: a, key: fabric.Key{ID: f.nextID, Rkey: f.rnd.Uint64(), Len: uint64(n)}}
	f.regions[f.nextID] = r
	return r, nil
}

func (f *shuffle) Caps() fabric.Caps { return fabric.Caps{OneSided: true, MaxSend: 1 << 20} }
func (f *shuffle) Close() error      { return nil }

func (f *shuffle) NewQueue(int) (fabric.Queue, error) { return &shuffleQueue{}, nil }

type shuffleQueue struct {
	wcs      []fabric.WC
	notified bool
}

func (q *shuffleQueue) Poll(dst []fabric.WC) int {
	n := copy(dst, q.wcs)
	q.wcs = q.wcs[n:]
	return n
}

func (q *shuffleQueue) pending() bool { return q.notified || len(q.wcs) > 0 }

// wakes reports whether a Wait would return, and clears the notification.
func (q *shuffleQueue) wakes() bool {
	if q.notified {
		q.notified = false
		return true
	}
	return len(q.wcs) > 0
}
func (q *shuffleQueue) Wait(context.Context, int) error { return errors.New("a test does not sleep") }
func (q *shuffleQueue) Wake()                           { q.notified = true }
func (q *shuffleQueue) Close() error                    { return nil }

type shuffleIncoming struct {
	f      *shuffle
	hello  []byte
	o      fabric.EndpointOptions
	dialer *shuffleEndpoint
	answer chan []byte
}

func (f *shuffle) Listen(string) (fabric.Listener, error) { return nil, errors.New("not needed") }

func (f *shuffle) Dial(_ context.Context, _ string, hello []byte, o fabric.EndpointOptions) (fabric.Endpoint, []byte, error) {
	in := &shuffleIncoming{f: f, hello: hello, o: o, dialer: f.endpoint(o), answer: make(chan []byte, 1)}
	f.listen <- in
	answer := <-in.answer
	if answer == nil {
		return nil, nil, fabric.ErrRefused
	}
	return in.dialer, answer, nil
}

func (in *shuffleIncoming) Hello() []byte       { return in.hello }
func (in *shuffleIncoming) Reject(string) error { in.answer <- nil; return nil }
func (in *shuffleIncoming) Accept(o fabric.EndpointOptions, answer []byte) (fabric.Endpoint, error) {
	e := in.f.endpoint(o)
	e.other, in.dialer.other = in.dialer, e
	in.f.endpoints = append(in.f.endpoints, in.dialer, e)
	in.answer <- answer
	return e, nil
}

func (f *shuffle) endpoint(o fabric.EndpointOptions) *shuffleEndpoint {
	return &shuffleEndpoint{f: f, o: o, done: make(chan struct{})}
}

type shuffleEndpoint struct {
	f     *shuffle
	o     fabric.EndpointOptions
	other *shuffleEndpoint
	ops   []*shuffleOp
	recvs []fabric.WR
	err   error
	done  chan struct{}
	full  bool // Post returns ErrAgain
	hold  bool // operations do not complete
}

type shuffleOp struct {
	wr   fabric.WR
	todo []uint64 // words that have not been moved yet
}

func (e *shuffleEndpoint) Peer() fabric.Peer     { return fabric.Peer{Addr: "shuffle"} }
func (e *shuffleEndpoint) Done() <-chan struct{} { return e.done }
func (e *shuffleEndpoint) Err() error            { return e.err }
func (e *shuffleEndpoint) Close() error          { e.end(fabric.ErrClosed); return nil }

func (e *shuffleEndpoint) end(err error) {
	if e.err != nil {
		return
	}
	e.err = err
	close(e.done)
	for _, op := range e.ops {
		e.o.Send.(*shuffleQueue).wcs = append(e.o.Send.(*shuffleQueue).wcs, fabric.WC{ID: op.wr.ID, Op: op.wr.Op, Err: fabric.ErrFlushed})
	}
	e.ops = nil
	if e.other != nil {
		e.other.end(fabric.ErrPeer)
	}
}

func (e *shuffleEndpoint) Post(w []fabric.WR) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	for i, wr := range w {
		if wr.Op == fabric.Recv {
			e.recvs = append(e.recvs, wr)
			continue
		}
		if e.full || len(e.ops) >= 40 {
			return i, fabric.ErrAgain
		}
		if wr.Op == fabric.Write && e.busy(&wr) {
			panic("a place is written again before its last Write has completed (invariants 2 and 3)")
		}
		op := &shuffleOp{wr: wr}
		if wr.Op != fabric.Send {
			for _, k := range e.f.rnd.Perm(int(wr.LLen+7) / 8) {
				op.todo = append(op.todo, uint64(k)*8)
			}
		}
		e.ops = append(e.ops, op)
	}
	return len(w), nil
}

// busy reports whether a Write to a part of the same place has not completed.
func (e *shuffleEndpoint) busy(wr *fabric.WR) bool {
	for _, op := range e.ops {
		o := &op.wr
		if o.Op == fabric.Write && o.Remote == wr.Remote && o.ROff < wr.ROff+wr.LLen && wr.ROff < o.ROff+o.LLen {
			return true
		}
	}
	return false
}

// move moves one word of an operation. A violation makes the operation fail.
func (e *shuffleEndpoint) move(op *shuffleOp, at uint64) bool {
	r := e.f.regions[op.wr.Remote.ID]
	need := fabric.RemoteRead
	if op.wr.Op == fabric.Write {
		need = fabric.RemoteWrite
	}
	if r == nil || r.closed || r.key != op.wr.Remote || r.access&need == 0 || op.wr.ROff+op.wr.LLen > r.key.Len || op.wr.ROff+op.wr.LLen < op.wr.ROff {
		return false
	}
	n := min(8, op.wr.LLen-at)
	from, to := op.wr.Local.Bytes()[op.wr.LOff+at:][:n], r.b[op.wr.ROff+at:][:n]
	if op.wr.Op == fabric.Read {
		from, to = to, from
	}
	words.Write(to, append([]byte(nil), from...))
	return true
}

// step makes one step at a random endpoint. It reports whether any step is left.
func (f *shuffle) step() bool {
	e := f.endpoints[f.rnd.IntN(len(f.endpoints))]
	if e.err == nil && len(e.ops) > 0 {
		i := f.rnd.IntN(min(len(e.ops), 4))
		op := e.ops[i]
		switch {
		case op.wr.Op == fabric.Send:
			if i == 0 {
				e.send(op)
			}
		case len(op.todo) > 0:
			n := min(len(op.todo), 1+f.rnd.IntN(64))
			for _, at := range op.todo[:n] {
				if !e.move(op, at) {
					e.end(fabric.ErrAccess)
					return true
				}
			}
			op.todo = op.todo[n:]
		case f.rnd.IntN(3) == 0 && op.wr.LLen > 0: // a word is moved again
			e.move(op, f.rnd.Uint64N((op.wr.LLen+7)/8)*8)
		case i == 0 && !e.hold:
			if op.wr.Flags&fabric.Notify != 0 {
				e.other.o.Recv.(*shuffleQueue).notified = true
			}
			e.complete(op)
		}
	}
	for _, e := range f.endpoints {
		if len(e.ops) > 0 && !e.hold {
			return true
		}
	}
	return false
}

func (e *shuffleEndpoint) complete(op *shuffleOp) {
	e.ops = e.ops[1:]
	if op.wr.Flags&fabric.Signal != 0 {
		q := e.o.Send.(*shuffleQueue)
		q.wcs = append(q.wcs, fabric.WC{ID: op.wr.ID, Op: op.wr.Op, Len: uint32(op.wr.LLen)})
	}
}

func (e *shuffleEndpoint) send(op *shuffleOp) {
	if len(e.other.recvs) == 0 {
		e.end(fabric.ErrTimeout)
		return
	}
	r := e.other.recvs[0]
	e.other.recvs = e.other.recvs[1:]
	copy(r.Local.Bytes()[r.LOff:][:r.LLen], op.wr.Local.Bytes()[op.wr.LOff:][:op.wr.LLen])
	q := e.other.o.Recv.(*shuffleQueue)
	q.wcs = append(q.wcs, fabric.WC{ID: r.ID, Op: fabric.Recv, Len: uint32(op.wr.LLen)})
	e.complete(op)
}
