package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errAgain = errors.New("resp: the socket is not ready")
	errRaw   = errors.New("resp: a socket of the loop was used by a call that may wait")
)

// A raw is a connected socket outside of Go's poller, which would be told of everything that arrives, too. Its reads
// and writes do not wait.
type raw struct {
	in, out       way
	local, remote net.Addr

	mu sync.Mutex // guards fd against calls from other goroutines than the loop's
	fd int        // -1: closed
}

// unpoll takes a socket out of Go's poller, and returns nil if it cannot. Afterwards nc is closed.
func unpoll(nc net.Conn) *raw {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	sc, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	sc.Control(func(from uintptr) { fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0) })
	if fd < 0 || err != nil {
		return nil
	}
	r := &raw{fd: fd, local: nc.LocalAddr(), remote: nc.RemoteAddr()}
	r.in.trap, r.out.trap = syscall.SYS_READ, syscall.SYS_WRITE
	nc.Close()
	return r
}

// take returns the connection in Go's poller; r has it no longer. That takes no other descriptor, as net.FileConn would:
// at the limit of descriptors a connection leaves the loop like any other.
func (r *raw) take() net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &moved{os.NewFile(uintptr(r.fd), ""), r.local, r.remote}
	r.fd = -1
	return m
}

// A moved is the socket of a connection that has left the loop.
type moved struct {
	*os.File
	local, remote net.Addr
}

func (m *moved) LocalAddr() net.Addr  { return m.local }
func (m *moved) RemoteAddr() net.Addr { return m.remote }

// move is one call of read or write. The error is errAgain if the call would have to wait.
func (r *raw) move(w *way, b []byte) (int, error) {
	w.b = b[:min(len(b), stretch)]
	ready := w.try(uintptr(r.fd))
	w.b = nil
	switch {
	case !ready:
		return 0, errAgain
	case w.err != 0:
		return 0, w.err
	}
	return w.n, nil
}

func (r *raw) Read(b []byte) (int, error) {
	n, err := r.move(&r.in, b)
	if n == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return n, err
}

func (r *raw) Write(b []byte) (int, error) { return 0, errRaw }

// Close ends the connection. The loop finds that, and forgets it.
func (r *raw) Close() error { return r.shut(unix.SHUT_RDWR) }

// SetReadDeadline ends the input.
func (r *raw) SetReadDeadline(time.Time) error { return r.shut(unix.SHUT_RD) }

func (r *raw) shut(how int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return net.ErrClosed
	}
	return unix.Shutdown(r.fd, how)
}

// free closes the socket.
func (r *raw) free() {
	r.mu.Lock()
	defer r.mu.Unlock()
	unix.Close(r.fd)
	r.fd = -1
}

func (r *raw) LocalAddr() net.Addr              { return r.local }
func (r *raw) RemoteAddr() net.Addr             { return r.remote }
func (r *raw) SetDeadline(time.Time) error      { return errRaw }
func (r *raw) SetWriteDeadline(time.Time) error { return errRaw }
