//go:build !linux

package machine

// pin does nothing: the system has no way to keep a thread on a processor.
func pin(int) {}
