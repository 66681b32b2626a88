package words

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Alloc returns n bytes, at least 1, of zeroed memory outside the Go heap, beginning at a page boundary.
func Alloc(n int) ([]byte, error) {
	p, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_COMMIT|windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, os.NewSyscallError("VirtualAlloc", err)
	}
	// The address is not in the Go heap; vet warns of integers that become heap pointers.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n), nil
}

// Free frees memory that Alloc has returned. An access to it afterwards crashes the process.
func Free(b []byte) error {
	return os.NewSyscallError("VirtualFree", windows.VirtualFree(uintptr(unsafe.Pointer(&b[0])), 0, windows.MEM_RELEASE))
}
