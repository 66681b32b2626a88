// Package vfs is the seam between the storage engine and the operating system.
//
// It holds the few operations that the engine needs of a file system, with
// what each promises and, as important, what it does not. There are three
// implementations:
//
//   - [OS], the real one;
//   - [Mem], in memory, which knows what a power cut may leave behind and
//     makes such images by the hundred thousand;
//   - [Faulty], around any other, which lets a test refuse any call.
//
// Offsets, lengths and sizes are in bytes throughout. Nothing here buffers,
// and nothing retries a failed write-back: what the operating system said is
// what the caller gets.
package vfs

import "os"

// SectorSize is the most that a disk writes all or nothing, in bytes. A write
// that was not synced may be on disk sector by sector after a power cut.
const SectorSize = 512

// FS opens and removes files. It may be used by many goroutines at once.
type FS interface {
	// Open opens the regular file name. The flag is os.O_RDONLY or os.O_RDWR,
	// with os.O_CREATE and os.O_EXCL at will; others are refused. A symlink is
	// followed, but for O_EXCL. A new file's name is durable only after
	// SyncDir.
	Open(name string, flag int, perm os.FileMode) (File, error)

	// Remove removes the name; a symlink is removed, not followed. Open
	// handles stay usable where the system allows it.
	Remove(name string) error

	// SyncDir syncs the directory that holds name, so that a new or removed
	// name is durable. If name is a symlink it is the directory of the file in
	// the end pointed at. It does nothing on Windows, which has no such call.
	SyncDir(name string) error
}

// File is an open file. All methods but Close may be called from many
// goroutines at once. An error names the operation, the path and, where there
// is one, the offset, and unwraps to the system's errno; see [ErrNoSpace].
// Methods called after Close report [os.ErrClosed].
type File interface {
	// Name returns the name as given to Open.
	Name() string

	// ReadAt is that of io.ReaderAt: less than len(p) bytes come with an
	// error, which at the end of the file is io.EOF itself, not wrapped.
	ReadAt(p []byte, off int64) (n int, err error)

	// WriteAt writes all of p or reports how much was written and why not
	// more. A process killed meanwhile may leave any prefix, cut between
	// memory pages.
	WriteAt(p []byte, off int64) (n int, err error)

	// WriteVec writes the buffers one after the other from off on, in one
	// system call where the system can. After an error any prefix may have
	// been written.
	WriteVec(bufs [][]byte, off int64) error

	// Datasync makes durable all that was written before the call, and the
	// size needed to read it. After an error nothing written since the last
	// success is known to be durable nor known to be lost, and a second call
	// proves nothing: the system may have marked the lost pages clean. It is
	// therefore never repeated inside, not even when interrupted. It works on
	// a read-only handle too, but not on Windows.
	Datasync() error

	// WriteOut starts the write-back of a range and, with wait, waits for it.
	// It promises nothing: neither the size nor the disk's cache is written.
	// Its use is to leave little for the next Datasync. An error is a failed
	// write-back and must be treated like that of Datasync. It does nothing
	// where the system lacks it.
	WriteOut(off, n int64, wait bool) error

	// Allocate reserves space for a range and lets the file grow to hold it;
	// new bytes read as zero. After an error, part may have been reserved and
	// the file may have grown. Where the system cannot reserve space, zeros
	// are written beyond the end of the file, and holes before it stay holes.
	Allocate(off, n int64) error

	// Punch gives a range's space back to the file system; it reads as zero
	// from then on and the size stays. The error is errors.ErrUnsupported
	// where the file system cannot.
	Punch(off, n int64) error

	// Free returns how many bytes the file system has left for all who use it,
	// math.MaxInt64 if it has no end. The error is errors.ErrUnsupported where
	// the system is not asked.
	Free() (int64, error)

	// Truncate sets the size. It fails on Windows while the file is mapped.
	Truncate(size int64) error

	// Size returns the file's length.
	Size() (int64, error)

	// Blocks returns the bytes that the file occupies on disk, which holes
	// make fewer and reserved space makes more than Size.
	Blocks() (int64, error)

	// Map maps a range, shared and read-only: what WriteAt writes shows at
	// once. The offset is a multiple of os.Getpagesize (64 KiB on Windows), n
	// is positive. On Unix the range may reach past the end of the file, but
	// touching a page that lies wholly past it faults. The slice is valid
	// until Unmap, also after Close.
	Map(off, n int64) ([]byte, error)

	// Unmap ends a mapping; b is exactly what Map returned. No slice of it may
	// be used afterwards.
	Unmap(b []byte) error

	// Lock takes the file's one lock for this handle, or reports a
	// *LockedError at once if another handle, in this process or another,
	// holds it in a mode that excludes ours: exclusive excludes all, shared
	// only exclusive. An exclusive lock needs a writable handle. The lock goes
	// by the file, not by its name, and ends with Unlock, Close or the
	// process. A handle that holds the lock must Unlock before it locks again.
	// File systems without locks report an error of their own.
	Lock(exclusive bool) error

	// Unlock gives the lock up. It is no error to hold none.
	Unlock() error

	// Close closes the file and gives its lock up. It syncs nothing, and must
	// not be called while another method runs.
	Close() error
}
