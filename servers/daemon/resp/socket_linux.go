package resp

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

// direct returns c with faster Read and Write, if c is a TCP connection.
func direct(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *moved:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{Conn: c}
	s.in = way{raw: raw.Read, trap: syscall.SYS_READ}
	s.out = way{raw: raw.Write, trap: syscall.SYS_WRITE}
	s.in.call, s.out.call = s.in.try, s.out.try
	return s
}

// A socket is a TCP connection that reads and writes by system calls that bypass Go's scheduler. A net.Conn enters
// the scheduler for each system call, because the call may block; and while calls are under way, a thread of the
// runtime wakes every 20 µs to find those that do block. The calls of a socket cannot block, because Go's sockets
// are non-blocking: a call that would have to wait fails, and package net then waits for the socket, as it does for
// its own calls. The deadlines and Close of net.Conn work as usual.
//
// Invariant: a call moves at most stretch bytes. For that long, neither the garbage collector nor another goroutine
// gets the processor.
type socket struct {
	net.Conn
	in, out way
}

const stretch = 64 << 10

// A way is one direction of a socket, used by one goroutine.
type way struct {
	raw  func(func(fd uintptr) bool) error // of syscall.RawConn: calls its argument until that returns true, and waits in between
	call func(fd uintptr) bool             // try, as a value that is made only once
	trap uintptr                           // number of the system call

	b   []byte
	n   int           // bytes that the last call has moved
	err syscall.Errno // of the last call
}

// try makes the system call. It returns false if the call would have to wait.
func (w *way) try(fd uintptr) bool {
	for {
		n, _, err := syscall.RawSyscall(w.trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(w.b))), uintptr(len(w.b)))
		if err == syscall.EINTR {
			continue
		}
		w.n, w.err = int(n), err
		if err != 0 {
			w.n = 0
		}
		return err != syscall.EAGAIN
	}
}

// move moves at most stretch bytes between b and the socket.
func (w *way) move(b []byte) (int, error) {
	w.b, w.n = b[:min(len(b), stretch)], 0
	err := w.raw(w.call)
	w.b = nil
	if err == nil && w.err != 0 {
		err = w.err
	}
	if err != nil {
		return 0, err
	}
	return w.n, nil
}

func (s *socket) Read(b []byte) (int, error) {
	n, err := s.in.move(b)
	if n == 0 && len(b) > 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

func (s *socket) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = s.out.move(b[n:])
		n += m
	}
	return n, err
}
