package vfs

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/windows"
)

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED) ||
		errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// SyncDir does nothing: NTFS logs changes of names by itself.
func (osFS) SyncDir(string) error { return nil }

func (f *osFile) Datasync() error {
	err := f.control(func(fd uintptr) error { return windows.FlushFileBuffers(windows.Handle(fd)) })
	return pathError("datasync", f.Name(), err)
}

func (f *osFile) Punch(off, n int64) error {
	return rangeError("punch", f.Name(), off, n, errors.ErrUnsupported)
}

// standardInfo is FILE_STANDARD_INFO.
type standardInfo struct {
	allocationSize, endOfFile int64
	links                     uint32
	deletePending, directory  bool
}

func (f *osFile) Blocks() (int64, error) {
	var info standardInfo
	err := f.control(func(fd uintptr) error {
		return windows.GetFileInformationByHandleEx(windows.Handle(fd), windows.FileStandardInfo,
			(*byte)(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	})
	return info.allocationSize, pathError("stat", f.Name(), err)
}

// Map cannot map a range past the end of the file, because the system would have to make the file longer.
func (f *osFile) Map(off, n int64) ([]byte, error) {
	err := checkRange(off, n)
	if n <= 0 || n != int64(int(n)) {
		err = errRange
	}
	if err != nil {
		return nil, rangeError("map", f.Name(), off, n, err)
	}
	b, err := mmap.MapRegion(f.f, int(n), mmap.RDONLY, 0, off)
	return b, rangeError("map", f.Name(), off, n, err)
}

func (f *osFile) Unmap(b []byte) error {
	m := mmap.MMap(b)
	return pathError("unmap", f.Name(), m.Unmap())
}
