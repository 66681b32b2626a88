package shm

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"flashdbm/servers/fabric/words"
)

// A memfd is memory that this process can share with other processes.
type memfd struct {
	fd int
	b  []byte
}

// newMemfd returns n bytes of zeroed memory of sealed size.
func newMemfd(name string, n int) (m memfd, err error) {
	fd, err := unix.MemfdCreate("flashdbm-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return m, os.NewSyscallError("memfd_create", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.Fchmod(fd, 0o400); err != nil { // a descriptor for reading cannot be opened again for writing
		return m, os.NewSyscallError("fchmod", err)
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return m, os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return m, os.NewSyscallError("fcntl", err)
	}
	b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return m, os.NewSyscallError("mmap", err)
	}
	return memfd{fd, b}, nil
}

// share returns a descriptor for a peer. The caller closes it.
func (m memfd) share(write bool) (int, error) {
	if write {
		fd, err := unix.FcntlInt(uintptr(m.fd), unix.F_DUPFD_CLOEXEC, 0)
		return fd, os.NewSyscallError("fcntl", err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", m.fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return fd, os.NewSyscallError("open", err)
}

// free frees the memory, including the pages that peers still map.
func (m memfd) free() error {
	err := unix.Fallocate(m.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(m.b)+os.Getpagesize()-1)&^int64(os.Getpagesize()-1))
	if unmap := unix.Munmap(m.b); err == nil {
		err = unmap
	}
	if closed := unix.Close(m.fd); err == nil {
		err = closed
	}
	return os.NewSyscallError("freeing a memfd", err)
}

// mapShared maps n bytes of a peer's memfd and closes the descriptor. It checks that the memfd is sealed, so the peer
// cannot shrink it.
func mapShared(fd, n int, write bool) ([]byte, error) {
	defer unix.Close(fd)
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("fabric: a peer's memory is not sealed: %w", os.NewSyscallError("fcntl", err))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if n <= 0 || int64(n) > st.Size {
		return nil, fmt.Errorf("fabric: a peer's memory has %d bytes and not %d", st.Size, n)
	}
	prot := unix.PROT_READ
	if write {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd, 0, n, prot, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

// maxRegions is the most regions of a domain that peers can reach at a time; more make Alloc fail. Two for each
// connection are usual. The fence words of all regions take 1 MiB of address space, of which only the pages in use
// are memory.
const maxRegions = 1 << 17

// fences are the fence words of a domain.
type fences struct {
	mem memfd
	fd  int // read-only, for peers

	mu   sync.Mutex // guards the fields below
	free []int      // indexes given back
	used int        // the number of indexes that were ever taken
}

func newFences() (*fences, error) {
	mem, err := newMemfd("fences", maxRegions*words.Size)
	if err != nil {
		return nil, err
	}
	fd, err := mem.share(false)
	if err != nil {
		mem.free()
		return nil, err
	}
	f := &fences{mem: mem, fd: fd}
	// Regions may be fenced once more after their domain was closed, so the words are freed with the last reference.
	runtime.AddCleanup(f, func(m memfd) { m.free() }, mem)
	runtime.AddCleanup(f, func(fd int) { unix.Close(fd) }, fd)
	return f, nil
}

// take returns the index of a word that no region uses.
func (f *fences) take() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		at := f.free[n-1]
		f.free = f.free[:n-1]
		return at, nil
	}
	if f.used == maxRegions {
		return 0, fmt.Errorf("fabric: %d regions that peers can reach, more than shm allows for: close some", maxRegions)
	}
	f.used++
	return f.used - 1, nil
}

// give gives an index back. Its word is not the ID of an open region.
func (f *fences) give(at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = append(f.free, at)
}

func (f *fences) open(at int, id uint64) { words.Store(f.mem.b, at*words.Size, id) }

// fence ends what open began. It may be called again after the index was given back and another region has taken it:
// the word differs from id then, and stays.
func (f *fences) fence(at int, id uint64) { words.CompareAndSwap(f.mem.b, at*words.Size, id, 0) }

// shared is the shared memory of a region.
type shared struct {
	mem memfd
	at  int // of its fence word
}
