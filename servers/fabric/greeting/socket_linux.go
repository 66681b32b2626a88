package greeting

import (
	"syscall"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric"
)

// userTimeout has the kernel give a connection up whose peer does not acknowledge what was sent.
func userTimeout(raw syscall.RawConn) {
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(fabric.Timeout.Milliseconds()))
	})
}
