package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
)

// defaultMaxFileBytes is the limit of a Mem file in bytes if NewMem is given none.
const defaultMaxFileBytes = 256 << 20

// Mem is a file system in memory, for tests. It behaves as [OS] does on Linux, and also knows which bytes are
// durable: see [Mem.Crash].
//
// It has one directory level of syncing, no symlinks and no permissions. Reading a mapping past the end of the
// file gives zeros instead of a fault.
//
// Durability follows Linux with fdatasync:
//
//  1. A Datasync that succeeds makes durable the data, size and allocation that the file had when the call
//     started.
//  2. A Datasync that fails, with a hook's error, makes nothing durable but leaves everything clean: the next
//     one succeeds and does not write what the failed one lost. The pages that it was to write are dropped, so
//     that reads and mappings show what was durable before; see [Loss]. If such a page stays and one of its
//     blocks changes again, the block is dirty again and is then written as a whole.
//  3. A WriteOut that fails has the same effect, and every later Datasync of the handle fails too.
//  4. A new or removed name is durable after a successful SyncDir of its directory, or of any name in it.
//
// Any number of goroutines may use a Mem at once; it is deterministic if one goroutine uses it. Only Release
// frees its memory.
type Mem struct {
	maxFileBytes int64 // address space of each file, a multiple of blockSize

	mu         sync.Mutex // guards all fields that follow, and the inodes
	seq        uint64     // number of changes so far
	links      map[string]*inode
	linkLog    []linkChange // undo log of the changes of links that are not durable
	inodes     []*inode     // all inodes in order of id, also those without a name
	lastID     int
	usedBlocks int64
	maxBytes   int64 // limit of usedBlocks in bytes, 0: none
	released   bool

	noCrash bool // what is written is durable at once: see WithoutCrashes

	loss     Loss // of pages that a Datasync failed to write
	lossSeed uint64

	ops   int
	onOp  func(Op) error
	guard func(name string, off, n int64) error
}

// linkChange is one change of the file that a name leads to.
type linkChange struct {
	seq    uint64
	name   string
	before *inode // nil: there was no such name
}

// NewMem returns an empty file system whose files can grow to maxFileBytes; 0 means 256 MiB. Each file takes
// that much address space, but memory only for what was written.
func NewMem(maxFileBytes int64) *Mem {
	if maxFileBytes <= 0 {
		maxFileBytes = defaultMaxFileBytes
	}
	maxFileBytes = (maxFileBytes + blockSize - 1) / blockSize * blockSize
	return &Mem{maxFileBytes: maxFileBytes, links: make(map[string]*inode)}
}

// WithoutCrashes makes later writes durable at once. Every image then equals Clone, and no history is kept,
// which saves most of the time that a Mem takes. It is for tests that look at no crash and no failed sync.
func (m *Mem) WithoutCrashes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noCrash = true
}

// OnOp sets the hook that sees every operation before it is carried out, on the goroutine of the caller; nil
// means none. The hook may use the Mem, for instance to Clone or Crash it. A write during a hook that looks at
// a Datasync comes after the start of that Datasync. Images do not inherit the hook.
func (m *Mem) OnOp(hook func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onOp = hook
}

// Guard sets a function that decides before each WriteAt and WriteVec, and before the OnOp hook, whether the
// range may be written. Its error becomes the error of the write. With Synced and ReadAt the function can
// assert that durable bytes do not change. Images do not inherit it.
func (m *Mem) Guard(check func(name string, off, n int64) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.guard = check
}

// SetMaxBytes limits the space of all files together, counted in blocks of 4,096 bytes; holes are free. What
// exceeds the limit fails with ENOSPC: a write stops at the first block that has no space, but can write blocks
// that have. 0 means no limit. Images inherit the limit.
func (m *Mem) SetMaxBytes(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.maxBytes = n
}

// Used returns the space of all files together in bytes, as SetMaxBytes counts it.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usedBlocks * blockSize
}

// Ops returns how many operations the OnOp hook has seen or would have seen.
func (m *Mem) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// Synced reports whether the range of the file holds only durable data: a crash now cannot change the content
// of its sectors. It is false for a name that does not exist.
func (m *Mem) Synced(name string, off, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ino := m.links[name]
	if ino == nil {
		return false
	}
	return ino.history.clean(off/SectorSize, (off+n+SectorSize-1)/SectorSize)
}

// Reserved reports whether the range of the file has space on disk that a crash now cannot take away. It is
// false for a name that does not exist.
func (m *Mem) Reserved(name string, off, n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ino := m.links[name]
	if ino == nil {
		return false
	}
	for b := off / blockSize; b*blockSize < off+n; b++ {
		if !ino.alloc.has(b) || !ino.history.syncedAlloc.has(b) {
			return false
		}
	}
	return true
}

// Clone returns a copy in which unsynced changes are still unsynced: the state after every process was killed.
// Handles and locks are not copied.
func (m *Mem) Clone() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.copy(true)
}

// copy is Clone with the mutex held. Without history everything in the copy
// is durable.
func (m *Mem) copy(withHistory bool) *Mem {
	c := NewMem(m.maxFileBytes)
	c.seq, c.lastID, c.maxBytes = m.seq, m.lastID, m.maxBytes
	c.loss, c.lossSeed, c.noCrash = m.loss, m.lossSeed, m.noCrash
	copies := map[*inode]*inode{nil: nil}
	copyOf := func(ino *inode) *inode {
		if _, ok := copies[ino]; !ok {
			to, err := ino.clone(c, withHistory)
			if err != nil {
				panic("vfs: no memory for an image: " + err.Error())
			}
			copies[ino] = to
		}
		return copies[ino]
	}
	for name, ino := range m.links {
		c.links[name] = copyOf(ino)
	}
	for _, l := range m.linkLog {
		c.linkLog = append(c.linkLog, linkChange{l.seq, l.name, copyOf(l.before)})
	}
	slices.SortFunc(c.inodes, func(a, b *inode) int { return a.id - b.id })
	return c
}

// Release frees the memory. The Mem, its files and mappings must not be used afterwards, except that methods of
// open files report os.ErrClosed.
func (m *Mem) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.released = true
	for _, ino := range m.inodes {
		ino.arena.release()
	}
	m.inodes, m.links, m.linkLog = nil, nil, nil
}

// begin shows an operation to the hook. It returns the seq at which the
// operation started.
func (m *Mem) begin(op Op) (started uint64, err error) {
	m.mu.Lock()
	op.Index, started = m.ops, m.seq
	m.ops++
	hook := m.onOp
	m.mu.Unlock()
	if hook != nil {
		err = hook(op)
	}
	return started, err
}

// Open implements FS.
func (m *Mem) Open(name string, flag int, perm os.FileMode) (File, error) {
	if err := checkFlag(flag); err != nil {
		return nil, pathError("open", name, err)
	}
	m.mu.Lock()
	_, found := m.links[name]
	m.mu.Unlock()
	if !found && flag&os.O_CREATE != 0 {
		if _, err := m.begin(Op{Kind: OpCreate, Name: name}); err != nil {
			return nil, pathError("open", name, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ino, err := m.find(name, flag, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	ino.handles++
	return &memFile{mem: m, ino: ino, name: name, writable: flag&os.O_RDWR != 0}, nil
}

// find returns the file of that name, and creates it if the flag says so.
func (m *Mem) find(name string, flag int, perm os.FileMode) (*inode, error) {
	if m.released {
		return nil, os.ErrClosed
	}
	ino := m.links[name]
	switch {
	case ino == nil && flag&os.O_CREATE == 0:
		return nil, syscall.ENOENT
	case ino == nil:
		ino, err := m.newInode(perm)
		if err != nil {
			return nil, err
		}
		m.link(name, ino)
		return ino, nil
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, syscall.EEXIST
	}
	return ino, nil
}

// link makes the name lead to the file, or removes the name if the file is nil.
func (m *Mem) link(name string, ino *inode) {
	m.seq++
	m.linkLog = append(m.linkLog, linkChange{m.seq, name, m.links[name]})
	if was := m.links[name]; was != nil {
		was.setLinked(false)
	}
	delete(m.links, name)
	if ino != nil {
		m.links[name] = ino
		ino.setLinked(true)
	}
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	if _, err := m.begin(Op{Kind: OpRemove, Name: name}); err != nil {
		return pathError("remove", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.links[name] == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	m.link(name, nil)
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	started, err := m.begin(Op{Kind: OpSyncDir, Name: name})
	if err != nil {
		return pathError("sync directory of", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := filepath.Dir(name)
	m.linkLog = slices.DeleteFunc(m.linkLog, func(l linkChange) bool {
		return l.seq <= started && filepath.Dir(l.name) == dir
	})
	return nil
}
