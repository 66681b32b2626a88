package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// processTime returns the processor time of a process, in seconds.
func processTime(pid int) float64 {
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|2), &t) != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}

func ownTime() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
