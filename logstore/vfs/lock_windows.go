package vfs

import "golang.org/x/sys/windows"

// lockOffset is the offset of the one byte that is locked in place of the file. Locks are mandatory on Windows,
// so the byte must lie where no process reads or writes.
const (
	lockOffsetLow  = 0xfffff000
	lockOffsetHigh = 0x7fffffff
)

func lockRange() *windows.Overlapped {
	return &windows.Overlapped{Offset: lockOffsetLow, OffsetHigh: lockOffsetHigh}
}

func (f *osFile) lock(exclusive bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := f.control(func(fd uintptr) error {
		return windows.LockFileEx(windows.Handle(fd), flags, 0, 1, 0, lockRange())
	})
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return &LockedError{Path: f.Name()}
	}
	return pathError("lock", f.Name(), err)
}

func (f *osFile) unlock() error {
	return f.control(func(fd uintptr) error {
		return windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0, lockRange())
	})
}

// lockHolder is not known here.
type lockHolder struct{}
