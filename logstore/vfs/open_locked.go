package vfs

import (
	"context"
	"errors"
	"time"
)

// lockPause is the pause between two attempts to lock a file.
const lockPause = 5 * time.Millisecond

// OpenLocked opens a file and locks it. While another handle holds the lock, OpenLocked tries again until the given
// time is over; then it returns the *LockedError. If ctx ends before that, it returns the error of ctx. Its other
// errors are those of open and of [File.Lock].
//
// After a wait OpenLocked opens the file again. Meanwhile another file may have got the name, and writes to the old
// file would be lost.
func OpenLocked(ctx context.Context, open func() (File, error), exclusive bool, wait time.Duration) (File, error) {
	for deadline := time.Now().Add(wait); ; {
		f, err := open()
		if err != nil {
			return nil, err
		}
		waited, err := lockUntil(ctx, f, exclusive, deadline)
		if err == nil && !waited {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

// lockUntil locks a file. waited reports that another handle held the lock at first.
func lockUntil(ctx context.Context, f File, exclusive bool, deadline time.Time) (waited bool, err error) {
	for {
		err := f.Lock(exclusive)
		if !errors.Is(err, ErrLocked) || !time.Now().Before(deadline) {
			return waited, err
		}
		waited = true
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return true, ctx.Err()
		}
	}
}
