// Package vfs is the seam between the storage engine and the operating system.
//
// It defines the few operations that the engine needs of a file system. Each says what it promises and, as
// important, what it does not. There are three implementations:
//
//   - [OS], the real one;
//   - [Mem], in memory, which knows what a power cut may leave and makes such images by the hundred thousand;
//   - [Faulty], around any other one, with which a test can make any call fail.
//
// Offsets, lengths and sizes are in bytes throughout. The package does not buffer, and does not retry a failed
// write-back: the caller gets what the operating system returned.
package vfs

import "os"

// SectorSize is the largest number of bytes that a disk writes as a whole or not at all. After a power cut an
// unsynced write may be on disk sector by sector.
const SectorSize = 512

// FS opens and removes files. It may be used by many goroutines at once.
type FS interface {
	// Open opens the regular file name. The flag is os.O_RDONLY or os.O_RDWR, optionally with os.O_CREATE and
	// os.O_EXCL; other flags are refused. A symlink is followed, unless O_EXCL is set. A new file's name is
	// durable only after SyncDir.
	Open(name string, flag int, perm os.FileMode) (File, error)

	// Remove removes the name; a symlink is removed, not followed. Open handles stay usable if the system
	// allows it.
	Remove(name string) error

	// SyncDir syncs the directory that holds name, so that a new or removed name is durable. If name is a
	// symlink, SyncDir syncs the directory of the file to which it finally leads. It does nothing on Windows,
	// which has no such call.
	SyncDir(name string) error
}

// File is an open file. Any number of goroutines may call all methods but Close at once. An error names the
// operation, the path and, if there is one, the offset, and unwraps to the system's errno; see [ErrNoSpace].
// Methods called after Close return [os.ErrClosed].
type File interface {
	// Name returns the name as given to Open.
	Name() string

	// ReadAt is as in io.ReaderAt: it returns an error with less than len(p) bytes. At the end of the file that
	// error is io.EOF itself, not wrapped.
	ReadAt(p []byte, off int64) (n int, err error)

	// WriteAt writes all of p, or returns how much it wrote and an error. If the process is killed during the
	// call, any prefix that ends at a memory page may have been written.
	WriteAt(p []byte, off int64) (n int, err error)

	// WriteVec writes the buffers one after the other from off on, in one system call if the system can. After
	// an error any prefix may have been written.
	WriteVec(bufs [][]byte, off int64) error

	// Datasync makes everything written before the call durable, and the size needed to read it. After an error
	// it is not known of any write since the last success whether it is durable or lost. A second call proves
	// nothing, because the system may have marked the lost pages clean. So an implementation never repeats the
	// call, not even after an interruption. Datasync works on a read-only handle too, except on Windows.
	Datasync() error

	// WriteOut starts the write-back of a range and, with wait, waits for it. It promises nothing, because it
	// writes neither the size nor the disk's cache; it leaves less for the next Datasync to do. An error is a
	// failed write-back and must be treated like an error of Datasync. It does nothing on systems without such
	// a call.
	WriteOut(off, n int64, wait bool) error

	// Allocate reserves space for a range and makes the file longer if needed; new bytes read as zero. After an
	// error part of the range may have been reserved and the file may have grown. On a system that cannot
	// reserve space, Allocate writes zeros beyond the end of the file, and leaves holes before the end as they
	// are.
	Allocate(off, n int64) error

	// Punch gives a range's space back to the file system. The range then reads as zero, and the size does not
	// change. The error is errors.ErrUnsupported if the file system cannot do it.
	Punch(off, n int64) error

	// Free returns how many bytes the file system has left for all its users, math.MaxInt64 if it has no limit.
	// The error is errors.ErrUnsupported on systems where this is not implemented.
	Free() (int64, error)

	// Truncate sets the size. It fails on Windows while the file is mapped.
	Truncate(size int64) error

	// Size returns the file's length.
	Size() (int64, error)

	// Blocks returns the bytes that the file occupies on disk. With holes that is less than Size, with reserved
	// space more.
	Blocks() (int64, error)

	// Map maps a range, shared and read-only: the mapping shows at once what WriteAt writes. The offset is a
	// multiple of os.Getpagesize (64 KiB on Windows), and n is positive. On Unix the range may extend past the
	// end of the file, but touching a page that lies wholly past the end faults. The slice is valid until
	// Unmap, even after Close.
	Map(off, n int64) ([]byte, error)

	// Unmap ends a mapping; b is exactly the slice that Map returned. No slice of it may be used afterwards.
	Unmap(b []byte) error

	// Lock takes the file's one lock for this handle. It returns a *LockedError at once if another handle, in
	// this process or another, holds the lock in a conflicting mode: exclusive conflicts with everything,
	// shared only with exclusive. An exclusive lock needs a writable handle. The lock belongs to the file, not
	// to its name, and ends with Unlock, with Close, or when the process ends. A handle that holds the lock
	// must Unlock before it locks again. On a file system without locks the error is another one.
	Lock(exclusive bool) error

	// Unlock releases the lock. It is not an error if the handle does not hold it.
	Unlock() error

	// Close releases the lock and closes the file. It syncs nothing, and must not be called during another
	// method.
	Close() error
}
