package words

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Alloc returns n bytes, 1 at least, of zeroed memory outside the Go heap that begins with a page.
func Alloc(n int) ([]byte, error) {
	p, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_COMMIT|windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, os.NewSyscallError("VirtualAlloc", err)
	}
	// The address is no pointer of the Go heap, which is what vet fears of a number that becomes one.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), n), nil
}

// Free gives the memory back that Alloc has returned. Whoever looks at it afterwards ends the process.
func Free(b []byte) error {
	return os.NewSyscallError("VirtualFree", windows.VirtualFree(uintptr(unsafe.Pointer(&b[0])), 0, windows.MEM_RELEASE))
}
