//go:build cgo && unix

package main

/*
#include <errno.h>
#include <fcntl.h>

static int closed;

// Go opens /dev/null in place of a standard stream that is closed, before any
// of its code runs, so that no file of the program takes that descriptor. Output
// would be lost without an error. This function runs before Go does.
__attribute__((constructor)) static void look(void) {
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
			closed |= 1 << fd;
}

static int closed_streams(void) { return closed; }
*/
import "C"

import (
	"os"
	"syscall"
)

// wasClosed reports whether the standard stream of a descriptor was closed when
// the program began.
func wasClosed(fd int) bool { return C.closed_streams()>>fd&1 != 0 }

// closedStream returns a file that is closed, so that every use of it is an error with its name.
func closedStream(name string) *os.File {
	fd, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil // all methods of a nil file return an error
	}
	f := os.NewFile(uintptr(fd), name)
	f.Close()
	return f
}

const wasClosedIsKnown = true
