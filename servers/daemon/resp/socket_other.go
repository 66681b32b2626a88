//go:build !linux

package resp

import "net"

// direct returns c: only on Linux can system calls be made without the scheduler.
func direct(c net.Conn) net.Conn { return c }
