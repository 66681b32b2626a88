//go:build unix && !linux

package vfs

import "golang.org/x/sys/unix"

// lock uses flock. Like an open-file-description lock of Linux, a flock belongs to the handle. The system does
// not tell which process holds it.
func (f *osFile) lock(exclusive bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := f.flock(how | unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return &LockedError{Path: f.Name()}
	}
	return pathError("lock", f.Name(), err)
}

func (f *osFile) unlock() error { return f.flock(unix.LOCK_UN) }

// flock repeats a call that a signal interrupted before it had an effect.
func (f *osFile) flock(how int) error {
	return f.control(func(fd uintptr) error {
		for {
			if err := unix.Flock(int(fd), how); err != unix.EINTR {
				return err
			}
		}
	})
}

// lockHolder is not known here.
type lockHolder struct{}
