package machine

import "golang.org/x/sys/unix"

// pin binds the calling thread to one processor. If that is not permitted, the thread stays unbound.
func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}
