//go:build !linux

package greeting

import "syscall"

// userTimeout does nothing: this system has no such option, and the endpoint's own timer ends operations.
func userTimeout(syscall.RawConn) {}
