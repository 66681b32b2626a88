//go:build verbs

package verbs

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A descriptor is a file descriptor of libfabric on which a goroutine waits in Go's poller, so that no thread sleeps
// in C.
type descriptor struct {
	file *os.File
	raw  syscall.RawConn
}

func watchDescriptor(fd int, name string) (*descriptor, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(own, true)
	}
	if err != nil {
		return nil, fmt.Errorf("fabric: verbs: the descriptor of %s: %w", name, err)
	}
	x := &descriptor{file: os.NewFile(uintptr(own), name)}
	x.raw, err = x.file.SyscallConn()
	return x, err
}

// wait returns nil once the descriptor is readable, and an error once it is closed.
func (x *descriptor) wait() error {
	return x.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return n > 0 && err == nil
	})
}

func (x *descriptor) close() { x.file.Close() }
