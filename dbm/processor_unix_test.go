//go:build unix

package dbm

import (
	"syscall"
	"time"
)

// usedTime returns the processor time that this process has used so far. On a busy machine it is more reliable than
// elapsed time.
func usedTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
