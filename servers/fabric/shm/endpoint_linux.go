package shm

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/words"
)

// An endpoint is one end of a connection.
type endpoint struct {
	d    *Domain
	conn *net.UnixConn
	peer fabric.Peer

	// mu guards the fields below. Copies of posted operations run while it is held, so their memory stays mapped. The
	// locks of queues are taken while it is held.
	mu           sync.Mutex
	sends, recvs *ledger.Side
	bell         []byte             // the page of the peer's bell
	fences       []byte             // the peer's fence words
	windows      map[uint64]*window // by region ID
	asked        uint64             // ID of the region whose descriptor the operation at the head waits for, 0 for none
	sent         bool               // the Send at the head has been sent and not answered
	timer        *time.Timer        // runs while the operation at the head waits for the peer
	// waits: the number of timers so far. A timer that was stopped too late compares it with its own number and
	// finds that it is outdated
	waits   int
	arrived []byte // a Send of the peer that has found no Recv; nil for none
	err     error

	// maps guards windows, and keeps the memory mapped to which windows and fences refer. A goroutine that changes
	// them holds mu as well as maps, so a reader holds either lock. No lock is taken while maps is held.
	maps sync.RWMutex

	barrier atomic.Uint64 // an Add separates the stores before it from the loads after it
	done    chan struct{} // closed once err is set
}

func newEndpoint(d *Domain, conn *net.UnixConn, g *greeting, addr string, o fabric.EndpointOptions) *endpoint {
	return &endpoint{
		d: d, conn: conn, peer: fabric.Peer{Addr: addr, Incarnation: g.nonce}, bell: g.bell, fences: g.fences, windows: map[uint64]*window{},
		sends: ledger.NewSide(ledger.Of(o.Send), o.Depth), recvs: ledger.NewSide(ledger.Of(o.Recv), o.Recvs), done: make(chan struct{}),
	}
}

// begin starts the goroutine that reads the peer's packets.
func (e *endpoint) begin() error {
	if err := e.d.open.Keep(e); err != nil {
		return err
	}
	go e.listen()
	return nil
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
	defer local.Release()
	work := ledger.Work{WR: *w}
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
	last := e.sends.Open() - 1
	if last == 0 {
		e.run(b)
	}
	if w.Flags&fabric.Inline != 0 && e.sends.Open() > last { // it has to wait
		e.sends.At(last).Inlined = append([]byte(nil), b...)
	}
	return nil
}

// run carries out operations in order, until one has to wait for the peer. b is the local memory of the operation at
// the head, nil if run has to look it up.
func (e *endpoint) run(b []byte) {
	for e.err == nil && e.sends.Open() > 0 {
		w := e.sends.At(0)
		n := w.LLen
		waits, err := e.carryOut(w, b)
		switch {
		case err != nil:
			e.end(err, err)
			return
		case waits:
			return
		}
		e.sends.Done(n)
		b = nil
	}
}

// carryOut carries out the operation at the head, or reports that it waits for the peer.
func (e *endpoint) carryOut(w *ledger.Work, b []byte) (waits bool, err error) {
	if w.Inlined != nil {
		b = w.Inlined
	}
	if b == nil && w.LLen > 0 {
		local, mem, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
		if err != nil {
			return false, fabric.ErrAccess // closed since the operation was posted
		}
		defer local.Release()
		b = mem
	}
	if w.Op == fabric.Send {
		return true, e.send(b)
	}
	if w.LLen > 0 {
		v := e.windows[w.Remote.ID]
		if v == nil {
			return true, e.ask(w.Remote)
		}
		if err := e.move(v, w, b); err != nil {
			return false, err
		}
	}
	if w.Flags&fabric.Notify != 0 {
		notify(e.bell)
	}
	return false, nil
}

// move copies from or to a peer's memory.
func (e *endpoint) move(v *window, w *ledger.Work, b []byte) error {
	want := fabric.RemoteRead
	if w.Op == fabric.Write {
		want = fabric.RemoteWrite
	}
	remote := v.reach(w.Remote, w.ROff, w.LLen, want)
	if remote == nil || v.fenced(e.fences) {
		return fabric.ErrAccess
	}
	if w.Op == fabric.Write {
		words.Write(remote, b)
		e.barrier.Add(1)
	} else {
		words.Read(b, remote)
	}
	if v.fenced(e.fences) {
		return fabric.ErrAccess
	}
	return nil
}

var _ fabric.Reader = (*endpoint)(nil) // clients test for this interface, and work without it

// ReadNow implements fabric.Reader.
func (e *endpoint) ReadNow(dst []byte, k fabric.Key, off uint64) error {
	e.maps.RLock()
	defer e.maps.RUnlock()
	v := e.windows[k.ID]
	if v == nil {
		return fabric.ErrAgain
	}
	remote := v.reach(k, off, uint64(len(dst)), fabric.RemoteRead)
	if remote == nil {
		return fabric.ErrAccess
	}
	words.Read(dst, remote)
	if v.fenced(e.fences) { // now, or before the copy
		return fabric.ErrAccess
	}
	return nil
}

// ask asks the peer for the descriptor of a region.
func (e *endpoint) ask(k fabric.Key) error {
	if k.Nonce != e.peer.Incarnation || k.ID == 0 {
		return fabric.ErrAccess
	}
	if e.asked != 0 {
		return nil
	}
	e.asked = k.ID
	packet := binary.LittleEndian.AppendUint64([]byte{packetMap}, k.ID)
	return e.await(binary.LittleEndian.AppendUint64(packet, k.Rkey))
}

// send sends the bytes of a Send to the peer.
func (e *endpoint) send(b []byte) error {
	if e.sent {
		return nil
	}
	e.sent = true
	packet := make([]byte, 1+len(b))
	packet[0] = packetSend
	words.Write(packet[1:], b)
	return e.await(packet)
}

// await sends a packet that the peer has to answer within fabric.Timeout.
func (e *endpoint) await(packet []byte) error {
	if err := e.packet(packet); err != nil {
		return err
	}
	e.waits++
	n := e.waits
	e.timer = time.AfterFunc(fabric.Timeout, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.timer != nil && e.waits == n {
			e.end(fabric.ErrTimeout, fabric.ErrTimeout)
		}
	})
	return nil
}

// packet sends a packet. A full socket means that the peer no longer reads, and gives ErrTimeout.
func (e *endpoint) packet(b []byte, fds ...int) error {
	switch err := send(e.conn, b, fds...); {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN):
		return fabric.ErrTimeout
	default:
		return fabric.ErrPeer
	}
}

// answered records that the peer has answered the operation at the head.
func (e *endpoint) answered() {
	e.asked, e.sent = 0, false
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// listen handles the peer's packets until the endpoint ends.
func (e *endpoint) listen() {
	buffer := make([]byte, maxPacket)
	for {
		packet, fds, err := receive(e.conn, buffer)
		e.mu.Lock()
		switch {
		case e.err != nil:
			closeAll(fds)
		case err != nil:
			e.end(fabric.ErrPeer, fabric.ErrPeer)
		default:
			if err := e.understand(packet, fds); err != nil {
				e.end(err, err)
			}
		}
		over := e.err != nil
		e.mu.Unlock()
		if over {
			return
		}
	}
}

// understand handles one packet. An error ends the endpoint: ErrPeer for a packet that breaks the protocol.
func (e *endpoint) understand(packet []byte, fds []int) error {
	body := packet[1:]
	switch {
	case packet[0] == packetMap && len(body) == 16:
		return e.share(binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:]))
	case packet[0] == packetMapped && len(body) == 25:
		return e.mapped(body, fds[0])
	case packet[0] == packetRefuse && len(body) == 8 && e.asked != 0 && e.asked == binary.LittleEndian.Uint64(body):
		return fabric.ErrAccess
	case packet[0] == packetSend && e.arrived == nil:
		e.arrived = append(make([]byte, 0, max(1, len(body))), body...)
		e.deliver()
		return nil
	case packet[0] == packetTaken && e.sent:
		e.answered()
		e.sends.Done(e.sends.At(0).LLen)
		e.run(nil)
		return nil
	case packet[0] == packetLarge && e.sent:
		return fabric.ErrAccess
	}
	closeAll(fds)
	return fabric.ErrPeer
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
		e.packet([]byte{packetLarge})
		e.end(fabric.ErrPeer, fabric.ErrPeer)
		return
	}
	n := len(e.arrived)
	words.Write(room[:n], e.arrived)
	local.Release()
	e.arrived = nil
	e.recvs.Done(uint64(n))
	if err := e.packet([]byte{packetTaken}); err != nil {
		e.end(err, err)
	}
}

// share sends a descriptor of a region to a peer that knows the region's key.
func (e *endpoint) share(id, rkey uint64) error {
	refuse := binary.LittleEndian.AppendUint64([]byte{packetRefuse}, id)
	r := e.d.regions.Find(fabric.Key{ID: id, Rkey: rkey, Nonce: e.d.nonce})
	if r == nil || r.Access() == 0 {
		return e.packet(refuse)
	}
	s := r.With().(*shared)
	a := r.Access()
	fd, err := s.mem.share(a&fabric.RemoteWrite != 0)
	if err != nil {
		return e.packet(refuse) // the region has just been closed, or the process is out of descriptors
	}
	defer unix.Close(fd)
	packet := binary.LittleEndian.AppendUint64([]byte{packetMapped}, id)
	packet = binary.LittleEndian.AppendUint64(packet, r.Key().Len)
	packet = binary.LittleEndian.AppendUint64(packet, uint64(s.at))
	return e.packet(append(packet, byte(a)), fd)
}

// mapped maps a region that the peer has shared, and carries out the operations that waited for it.
func (e *endpoint) mapped(body []byte, fd int) error {
	id, n, at := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:]), binary.LittleEndian.Uint64(body[16:])
	if e.asked == 0 || id != e.asked || at >= maxRegions || n > 1<<47 {
		unix.Close(fd)
		return fabric.ErrPeer
	}
	v := &window{key: e.sends.At(0).Remote, access: fabric.Access(body[24]), at: int(at)}
	var err error
	if v.mem, err = mapShared(fd, int(n), v.access&fabric.RemoteWrite != 0); err != nil {
		return fabric.ErrPeer
	}
	e.keep(id, v)
	e.answered()
	e.run(nil)
	return nil
}

// keep adds the mapping of a region, and unmaps regions that have been fenced.
func (e *endpoint) keep(id uint64, v *window) {
	e.maps.Lock()
	defer e.maps.Unlock()
	for old, w := range e.windows {
		if w.fenced(e.fences) {
			unmap(w.mem)
			delete(e.windows, old)
		}
	}
	e.windows[id] = v
}

// end ends the endpoint. Its oldest operation fails with head. The peer notices because the socket is closed.
func (e *endpoint) end(err, head error) {
	if e.err != nil {
		return
	}
	e.err = err
	e.answered()
	e.sends.End(head)
	e.recvs.End(fabric.ErrFlushed)
	e.maps.Lock()
	defer e.maps.Unlock()
	for _, v := range e.windows {
		unmap(v.mem)
	}
	e.windows = nil
	unmap(e.bell)
	unmap(e.fences)
	e.bell, e.fences, e.arrived = nil, nil, nil
	e.conn.Close()
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
