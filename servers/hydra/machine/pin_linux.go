package machine

import "golang.org/x/sys/unix"

// pin keeps the calling thread on one processor. Where that is not allowed the thread stays free.
func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}
