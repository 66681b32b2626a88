package vfs

import "os"

func (f *memFile) Lock(exclusive bool) error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	err := f.usable(exclusive)
	if err == nil && f.locked {
		err = errHoldLock
	}
	if err != nil {
		return pathError("lock", f.name, err)
	}
	if f.ino.exclusive != nil || exclusive && f.ino.shared > 0 {
		return &LockedError{Path: f.name, PID: os.Getpid()}
	}
	if exclusive {
		f.ino.exclusive = f
	} else {
		f.ino.shared++
	}
	f.locked = true
	return nil
}

func (f *memFile) Unlock() error {
	f.mem.mu.Lock()
	defer f.mem.mu.Unlock()
	if err := f.usable(false); err != nil {
		return pathError("unlock", f.name, err)
	}
	f.unlock()
	return nil
}

// unlock is called with the mutex held.
func (f *memFile) unlock() {
	switch {
	case !f.locked:
	case f.ino.exclusive == f:
		f.ino.exclusive = nil
	default:
		f.ino.shared--
	}
	f.locked = false
}
