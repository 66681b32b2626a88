//go:build !linux

package greeting

import "syscall"

// userTimeout does nothing: this system has no such option, and the endpoint's own clock is what ends operations.
func userTimeout(syscall.RawConn) {}
