package greeting

import (
	"syscall"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
)

// userTimeout makes the kernel end a connection whose peer does not acknowledge data for fabric.Timeout.
func userTimeout(raw syscall.RawConn) {
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(fabric.Timeout.Milliseconds()))
	})
}
