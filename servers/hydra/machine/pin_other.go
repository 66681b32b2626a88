//go:build !linux

package machine

// pin does nothing: on this system a thread cannot be bound to a processor.
func pin(int) {}
