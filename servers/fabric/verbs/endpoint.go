//go:build verbs

package verbs

// #include <stdlib.h>
// #include "link.h"
import "C"

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/words"
)

// An endpoint is one end of a connection.
type endpoint struct {
	d            *Domain
	id           uint64
	conn         *net.TCPConn // in addition to the device's connection: carries a byte for each Notify, and its end ends the endpoint
	raw          syscall.RawConn
	peer         fabric.Peer
	sendQ, recvQ *queue

	// mu guards the fields below. The locks of the ledger's queues are taken while it is held; a queue's reading is
	// taken before it.
	mu           sync.Mutex
	ep           *C.struct_fid_ep // nil until libfabric has created it, and after the end
	up           bool             // connected
	sends, recvs half
	wr           *[batch]C.vf_wr // outside the Go heap; nil after the end
	heard        time.Time       // when an operation last completed, or the first one was posted
	timer        *time.Timer
	bells        int  // the number of operations with Notify under way
	doomed       bool // the device has given up; the peer, which has the cause, gets time to report it
	err          error

	connected chan struct{} // closed once up is set
	done      chan struct{} // closed once err is set
}

// A half is the account of one of the endpoint's two work queues. Its operations have consecutive numbers. The oldest
// of the operations under way have been passed on: libfabric has them, or they have no bytes.
type half struct {
	*ledger.Side
	queue  *queue
	recv   bool
	first  uint64 // number of the oldest operation under way
	passed int    // the number of operations passed on
	inside int    // the number of operations in libfabric
	room   int    // most operations in libfabric
}

// numbers is the modulus of the operation's number in a completion's context; the other bits of the context are the
// endpoint and the half.
const numbers = 1 << 31

func (e *endpoint) context(h *half, number uint64) C.uint64_t {
	c := e.id<<32 | number%numbers
	if h.recv {
		c |= numbers
	}
	return C.uint64_t(c)
}

// empty reports whether an operation has no work for the device.
func empty(w *ledger.Work) bool { return w.LLen == 0 && (w.Op == fabric.Read || w.Op == fabric.Write) }

func (e *endpoint) Post(w []fabric.WR) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, e.err
	}
	for n < len(w) && err == nil {
		if err = e.take(&w[n]); err == nil {
			n++
		}
	}
	e.pass()
	return n, err
}

// take enters one work request into the ledger.
func (e *endpoint) take(w *fabric.WR) error {
	if err := ledger.Check(w, e.d.limits); err != nil {
		return err
	}
	if most := uint64(e.d.c.max_bytes); w.LLen > most {
		return fmt.Errorf("%w: %d bytes, the device moves %d at most", fabric.ErrInvalid, w.LLen, most)
	}
	local, _, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
	if err != nil {
		return err
	}
	local.Release()
	if w.Op == fabric.Recv {
		return e.recvs.Take(ledger.Work{WR: *w})
	}
	if err := e.sends.Take(ledger.Work{WR: *w}); err != nil {
		return err
	}
	if w.Flags&fabric.Notify != 0 {
		e.bells++
	}
	if e.sends.Open() == 1 {
		e.heard = time.Now()
		e.watch()
	}
	return nil
}

// pass passes on the operations that can be passed on. It is called whenever an operation was taken or
// has completed.
func (e *endpoint) pass() {
	if e.ep == nil {
		e.keepInlined()
		return
	}
	e.passHalf(&e.recvs)
	if e.up {
		e.passHalf(&e.sends)
		e.completeEmpty()
	}
	e.keepInlined()
}

// passHalf hands work requests to libfabric, in order.
func (e *endpoint) passHalf(h *half) {
	for e.err == nil && h.passed < h.Open() {
		var places [batch]int
		n, at := 0, h.passed
		for at < h.Open() && n < batch && h.inside+n < h.room {
			w := h.At(at)
			if !empty(w) {
				if !e.prepare(h, at, &e.wr[n]) {
					break
				}
				places[n] = at
				n++
			}
			at++
		}
		if n == 0 {
			h.passed = at
			return
		}
		room, taken := h.queue.take(n), C.int(0)
		if room > 0 {
			taken = C.vf_post(e.ep, &e.wr[0], C.int(room))
		}
		h.queue.give(room - max(int(taken), 0))
		if taken < 0 {
			e.end(fabric.ErrPeer, fabric.ErrPeer)
			return
		}
		h.inside += int(taken)
		if int(taken) < n { // libfabric or its queue is full
			h.passed = places[taken]
			return
		}
		h.passed = at
	}
}

// prepare turns the i-th operation under way into a work request of libfabric. It returns false if it cannot: the key
// is not the peer's, or the local memory was closed since the operation was posted.
func (e *endpoint) prepare(h *half, i int, c *C.vf_wr) bool {
	w := h.At(i)
	c.context, c.op, c.len, c.inlined = e.context(h, h.first+uint64(i)), C.uint32_t(w.Op), C.uint64_t(w.LLen), 0
	c.local, c.desc = nil, nil
	if w.Op == fabric.Read || w.Op == fabric.Write {
		key, ok := deviceKey(w.Remote, e.peer.Incarnation)
		if !ok {
			return false
		}
		c.key, c.remote = C.uint64_t(key), C.uint64_t(w.Remote.Base+w.ROff)
	}
	if w.Inlined != nil {
		c.inlined = 1
		copy(e.inlineBytes(c), w.Inlined)
		return true
	}
	local, b, err := e.d.regions.Own(w.Local, w.LOff, w.LLen)
	if err != nil {
		return false
	}
	defer local.Release()
	switch {
	case w.Flags&fabric.Inline != 0:
		c.inlined = 1
		words.Read(e.inlineBytes(c)[:len(b)], b)
	case len(b) > 0:
		c.local, c.desc = unsafe.Pointer(&b[0]), local.With().(*registered).desc
	}
	return true
}

func (e *endpoint) inlineBytes(c *C.vf_wr) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&c.data[0])), len(c.data))
}

// keepInlined copies the bytes of operations with Inline that have to wait, because the caller may reuse its memory
// after Post.
func (e *endpoint) keepInlined() {
	for i := e.sends.passed; i < e.sends.Open(); i++ {
		w := e.sends.At(i)
		if w.Flags&fabric.Inline == 0 || w.Inlined != nil {
			continue
		}
		if local, b, err := e.d.regions.Own(w.Local, w.LOff, w.LLen); err == nil {
			w.Inlined = make([]byte, len(b))
			words.Read(w.Inlined, b)
			local.Release()
		}
	}
}

// completeEmpty completes operations of no bytes at the head, and ends the endpoint if the operation at the head cannot be
// passed on.
func (e *endpoint) completeEmpty() {
	for e.err == nil && e.sends.passed > 0 && empty(e.sends.At(0)) {
		e.complete(&e.sends, 0)
	}
	for _, h := range []*half{&e.sends, &e.recvs} {
		if e.err == nil && h.passed == 0 && h.Open() > 0 && !e.prepare(h, 0, &e.wr[0]) {
			e.end(fabric.ErrAccess, fabric.ErrAccess)
		}
	}
	if e.err == nil && e.bells > 0 {
		e.sendQ.hurry()
	}
}

// complete completes the oldest operation of a half, which has moved n bytes.
func (e *endpoint) complete(h *half, n uint64) {
	w := h.At(0)
	notify := w.Flags&fabric.Notify != 0
	if !empty(w) {
		h.inside--
		h.queue.give(1)
	}
	h.passed--
	h.first++
	e.heard = time.Now()
	h.Done(n)
	if notify {
		e.bells--
		e.ring()
	}
}

// ring writes the byte of a Notify. If the socket is full, the peer has many unread bytes, and any of them will wake
// it.
func (e *endpoint) ring() {
	e.raw.Write(func(fd uintptr) bool {
		unix.Write(int(fd), []byte{1})
		return true
	})
}

// completed finds the endpoint of a completion and accounts for it. Callers pass completions in order.
func (d *Domain) completed(wc *C.vf_wc) {
	c := uint64(wc.context)
	d.mu.RLock()
	e := d.byID[c>>32]
	d.mu.RUnlock()
	if e == nil {
		return // the endpoint has ended, and all its operations have completed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	h := &e.sends
	if c&numbers != 0 {
		h = &e.recvs
	}
	ahead := int((c - h.first) % numbers)
	if ahead >= h.Open() {
		return // a Recv after a failed one
	}
	if wc.error != 0 {
		e.failed(h, ahead, wc)
		return
	}
	if h.recv && ahead > 0 {
		e.end(fabric.ErrPeer, fabric.ErrPeer) // completions were lost, and with them the lengths of what the Recvs received
		return
	}
	for range ahead { // their completions were lost
		e.complete(h, h.At(0).LLen)
	}
	n := h.At(0).LLen
	if h.recv {
		n = uint64(wc.len)
	}
	e.complete(h, n)
	e.pass()
}

// failed ends the endpoint because of a failed operation, unless the operation only failed after another one, of
// this end or of the peer.
func (e *endpoint) failed(h *half, ahead int, wc *C.vf_wc) {
	err := cause(int(wc.error), int(wc.provider))
	switch {
	case err == nil:
		e.doom()
	case h.recv:
		// The peer has the cause, too, but would not receive it if this end closed the connection first.
		h.End(err)
		h.first += numbers / 2 // ignores later completions of this half; their places in libfabric's queue stay taken
		h.passed = 0
		e.doom()
	default:
		for range ahead {
			e.complete(h, h.At(0).LLen)
		}
		e.end(err, err)
	}
}

// doom gives the peer fabric.Timeout to report why the device has given up, by closing the TCP connection.
func (e *endpoint) doom() {
	if e.doomed {
		return
	}
	e.doomed = true
	time.AfterFunc(fabric.Timeout, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.end(fabric.ErrPeer, fabric.ErrPeer)
	})
}

// watch starts the timer that checks heard while operations are under way. A timer that fires late shows that this
// process, or the machine with the device's software, stood still: then the device gets the full time again.
func (e *endpoint) watch() {
	if e.timer != nil {
		return
	}
	const pause = fabric.Timeout / 4
	began := time.Now()
	e.timer = time.AfterFunc(pause, func() {
		late := time.Since(began) > 2*pause
		e.reap()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.timer = nil
		switch {
		case e.err != nil || e.sends.Open() == 0:
			return
		case late:
			e.heard = time.Now()
		case e.up && time.Since(e.heard) >= fabric.Timeout:
			e.end(fabric.ErrTimeout, fabric.ErrTimeout)
			return
		}
		e.pass()
		e.watch()
	})
}

// reap moves completions into the ledger.
func (e *endpoint) reap() {
	for e.sendQ.reap() == batch {
	}
	for e.recvQ.reap() == batch {
	}
}

// listen reads the TCP connection until its end, which ends the endpoint.
func (e *endpoint) listen() {
	b := make([]byte, 512)
	for {
		n, err := e.conn.Read(b)
		if n > 0 {
			e.recvQ.Notify()
		}
		if err != nil {
			break
		}
	}
	e.reap() // a completion may have the cause
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(fabric.ErrPeer, fabric.ErrPeer)
}

// end ends the endpoint. Its oldest operation fails with head. The device has finished with the memory of all
// operations before they are flushed.
func (e *endpoint) end(err, head error) {
	if e.err != nil {
		return
	}
	e.err = err
	if e.ep != nil {
		e.d.links.Lock()
		C.vf_endpoint_close(e.ep)
		e.d.links.Unlock()
		e.ep = nil
	}
	C.free(unsafe.Pointer(e.wr))
	e.wr = nil
	e.sendQ.give(e.sends.inside)
	e.recvQ.give(e.recvs.inside)
	e.sends.End(head)
	e.recvs.End(fabric.ErrFlushed)
	e.d.forget(e)
	e.sendQ.release()
	e.recvQ.release()
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
