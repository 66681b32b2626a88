package tcp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/ledger"
	"flashdbm/servers/fabric/words"
)

// The first bytes of frames, and the length of a place (key, offset, length) in a frame.
const (
	frameRead  = 'r'
	frameWrite = 'w'
	frameSend  = 's'
	frameData  = 'd'
	frameDone  = 'k'

	placeSize = 8 + 8 + 8 + 8 + 4
)

const flagNotify = 1

// chunk is the number of bytes copied at a time. Between two chunks the endpoint records progress, and a Close of the
// region can proceed.
const chunk = 64 << 10

var errFrame = errors.New("fabric: a peer sends what makes no sense")

// write is the goroutine that writes frames: answers first, then this end's operations.
func (e *endpoint) write() {
	out := bufio.NewWriterSize(e.conn, chunk)
	scratch := make([]byte, chunk)
	for {
		a, w, ok := e.next(out)
		if !ok {
			return
		}
		var err error
		if w != nil {
			err = e.writeOperation(out, w, scratch)
		} else {
			err = e.writeAnswer(out, a, scratch)
		}
		if err != nil {
			e.fail(err)
			return
		}
	}
}

// next waits for an answer or an operation to write. It flushes before it waits, and returns false when the endpoint
// has ended.
func (e *endpoint) next(out *bufio.Writer) (a answer, w *ledger.Work, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		switch {
		case e.err != nil:
			return a, nil, false
		case len(e.answers) > 0:
			a = e.answers[0]
			e.answers = e.answers[1:]
			return a, nil, true
		case e.sent < e.sends.Open() && !e.held:
			work := *e.sends.At(e.sent)
			e.sent++
			e.held = work.Op == fabric.Send
			return a, &work, true
		case out.Buffered() > 0:
			e.mu.Unlock()
			err := out.Flush()
			e.mu.Lock()
			if err != nil {
				e.end(fabric.ErrPeer, fabric.ErrPeer)
			}
		default:
			e.work.Wait()
		}
	}
}

// fail ends the endpoint because of an error of its connection or its peer.
func (e *endpoint) fail(err error) {
	if err != fabric.ErrAccess {
		err = fabric.ErrPeer
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(err, err)
}

func appendPlace(b []byte, k fabric.Key, off, n uint64) []byte {
	for _, v := range []uint64{k.ID, k.Rkey, k.Nonce, off} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}

// writeOperation writes the frame of an operation.
func (e *endpoint) writeOperation(out *bufio.Writer, w *ledger.Work, scratch []byte) error {
	var head []byte
	switch w.Op {
	case fabric.Read:
		_, err := out.Write(appendPlace(append(head, frameRead), w.Remote, w.ROff, w.LLen))
		return err
	case fabric.Write:
		flags := byte(0)
		if w.Flags&fabric.Notify != 0 {
			flags = flagNotify
		}
		head = appendPlace(append(head, frameWrite, flags), w.Remote, w.ROff, w.LLen)
	case fabric.Send:
		head = binary.LittleEndian.AppendUint32(append(head, frameSend), uint32(w.LLen))
	}
	if _, err := out.Write(head); err != nil {
		return err
	}
	if w.Inlined != nil {
		_, err := out.Write(w.Inlined)
		return err
	}
	for at := uint64(0); at < w.LLen; at += chunk {
		n := min(chunk, w.LLen-at)
		local, b, err := e.d.regions.Own(w.Local, w.LOff+at, n)
		if err != nil {
			return fabric.ErrAccess // closed since the operation was posted
		}
		words.Read(scratch[:n], b)
		local.Release()
		if _, err := out.Write(scratch[:n]); err != nil {
			return err
		}
		if at+n < w.LLen {
			e.progress()
		}
	}
	return nil
}

// writeAnswer writes an answer; for a Read it copies the data, too.
func (e *endpoint) writeAnswer(out *bufio.Writer, a answer, scratch []byte) error {
	if !a.read {
		_, err := out.Write([]byte{frameDone, status(a.refused)})
		return err
	}
	if _, err := out.Write(binary.LittleEndian.AppendUint32([]byte{frameData}, uint32(a.n))); err != nil {
		return err
	}
	refused := false
	for at := uint64(0); at < a.n; at += chunk {
		n := min(chunk, a.n-at)
		if !refused {
			// Reach checks the whole operation for each chunk, above all the fence of the region.
			r, b, err := e.d.regions.Reach(a.k, a.off, a.n, fabric.RemoteRead)
			if err == nil {
				words.Read(scratch[:n], b[at:at+n])
				err = r.Leave()
			}
			refused = err != nil
		}
		if refused {
			clear(scratch[:n])
		}
		if _, err := out.Write(scratch[:n]); err != nil {
			return err
		}
	}
	return out.WriteByte(status(refused))
}

func status(refused bool) byte {
	if refused {
		return 1
	}
	return 0
}

// read is the goroutine that reads frames.
func (e *endpoint) read() {
	in := bufio.NewReaderSize(e.conn, chunk)
	scratch := make([]byte, chunk)
	for {
		kind, err := in.ReadByte()
		if err == nil {
			err = e.understand(in, kind, scratch)
		}
		if err != nil {
			e.fail(err)
			return
		}
	}
}

// understand reads the remainder of a frame and handles it. An error ends the endpoint.
func (e *endpoint) understand(in *bufio.Reader, kind byte, scratch []byte) error {
	switch kind {
	case frameRead, frameWrite:
		flags := byte(0)
		if kind == frameWrite {
			var err error
			if flags, err = in.ReadByte(); err != nil {
				return err
			}
		}
		head := scratch[:placeSize]
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(head[at:]) }
		a := answer{
			read: kind == frameRead, k: fabric.Key{ID: u64(0), Rkey: u64(8), Nonce: u64(16)}, off: u64(24),
			n: uint64(binary.LittleEndian.Uint32(head[32:])),
		}
		if kind == frameWrite {
			if err := e.place(in, &a, flags, scratch); err != nil {
				return err
			}
		}
		return e.enqueue(a)
	case frameSend:
		return e.readSend(in, scratch)
	case frameData:
		return e.readData(in, scratch)
	case frameDone:
		code, err := in.ReadByte()
		if err != nil {
			return err
		}
		return e.finish(code, func(w *ledger.Work) bool { return w.Op != fabric.Read })
	}
	return errFrame
}

// enqueue queues the answer to an operation of the peer. It returns an error if the peer exceeds its depth.
func (e *endpoint) enqueue(a answer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.answers) > e.budget {
		return errFrame
	}
	e.answer(a)
	return nil
}

// place carries out a Write. It reads the data even if the Write is refused.
func (e *endpoint) place(in *bufio.Reader, a *answer, flags byte, scratch []byte) error {
	for at := uint64(0); at < a.n; at += chunk {
		n := min(chunk, a.n-at)
		if _, err := io.ReadFull(in, scratch[:n]); err != nil {
			return err
		}
		if a.refused {
			continue
		}
		r, b, err := e.d.regions.Reach(a.k, a.off, a.n, fabric.RemoteWrite)
		if err == nil {
			words.Write(b[at:at+n], scratch[:n])
			err = r.Leave()
		}
		a.refused = err != nil
	}
	if flags&flagNotify != 0 && !a.refused {
		e.mu.Lock()
		q := e.recvs.Queue()
		e.mu.Unlock()
		q.Notify()
	}
	return nil
}

// readSend receives a Send of the peer.
func (e *endpoint) readSend(in *bufio.Reader, scratch []byte) error {
	if _, err := io.ReadFull(in, scratch[:4]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(scratch)
	if n > uint32(limits.MaxSend) {
		return errFrame
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(in, b); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.arrived != nil {
		return errFrame
	}
	e.arrived = b
	e.deliver()
	return nil
}

// readData receives the answer to the oldest operation, which has to be a Read.
func (e *endpoint) readData(in *bufio.Reader, scratch []byte) error {
	if _, err := io.ReadFull(in, scratch[:4]); err != nil {
		return err
	}
	e.mu.Lock()
	if e.err != nil || e.sent == 0 || e.sends.At(0).Op != fabric.Read || e.sends.At(0).LLen != uint64(binary.LittleEndian.Uint32(scratch)) {
		e.mu.Unlock()
		return errFrame
	}
	w := *e.sends.At(0) // it completes in this goroutine, unless the endpoint ends
	e.mu.Unlock()
	for at := uint64(0); at < w.LLen; at += chunk {
		n := min(chunk, w.LLen-at)
		if _, err := io.ReadFull(in, scratch[:n]); err != nil {
			return err
		}
		e.mu.Lock()
		if e.err != nil {
			e.mu.Unlock()
			return errFrame // the Read has completed, and its memory belongs to the caller again
		}
		local, b, err := e.d.regions.Own(w.Local, w.LOff+at, n)
		if err == nil {
			words.Write(b, scratch[:n])
			local.Release()
		}
		e.mu.Unlock()
		if err != nil {
			return fabric.ErrAccess // closed since the operation was posted
		}
		e.progress()
	}
	code, err := in.ReadByte()
	if err != nil {
		return err
	}
	return e.finish(code, func(w *ledger.Work) bool { return w.Op == fabric.Read })
}

// finish completes the oldest operation with the status code of the peer, if the operation is of the kind that the
// frame answers.
func (e *endpoint) finish(code byte, fits func(w *ledger.Work) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil || e.sent == 0 || !fits(e.sends.At(0)):
		return errFrame
	case code != 0:
		return fabric.ErrAccess
	}
	e.complete()
	return nil
}
