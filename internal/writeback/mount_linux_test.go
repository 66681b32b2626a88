package writeback

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"sync"
	"syscall"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// mount mounts the files of mem at dir until the test ends or unmount is called. Without FUSE, the test is skipped.
//
// The kernel caches pages that it has read or written, and writes through: when pwrite returns, the data is in the
// page cache, where a shared mapping shows it, and has been sent to this process. Nobody else changes the files, so
// nothing is ever invalidated.
func mount(t *testing.T, mem *vfs.Mem, dir string) (unmount func()) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("NOT RUN: no FUSE here: %v", err)
	}
	server, err := fs.Mount(dir, &directory{mem: mem}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName: "flashdbm-test", Name: "writeback", DirectMount: true, ExplicitDataCacheControl: true, DisableXAttrs: true, MaxWrite: 1 << 20,
		},
	})
	if err != nil {
		t.Skipf("NOT RUN: FUSE cannot be mounted here: %v", err)
	}
	var once sync.Once
	unmount = func() {
		once.Do(func() {
			if err := server.Unmount(); err != nil {
				t.Errorf("unmount: %v", err)
				unix.Unmount(dir, unix.MNT_DETACH)
			}
		})
	}
	t.Cleanup(unmount)
	return unmount
}

// directory is the root and the only directory.
type directory struct {
	fs.Inode
	mem   *vfs.Mem
	mu    sync.Mutex // guards files
	files map[string]*file
}

var (
	_ fs.NodeLookuper  = (*directory)(nil)
	_ fs.NodeCreater   = (*directory)(nil)
	_ fs.NodeUnlinker  = (*directory)(nil)
	_ fs.NodeReaddirer = (*directory)(nil)
	_ fs.NodeFsyncer   = (*directory)(nil)
)

func (d *directory) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return d.open(ctx, name, os.O_RDWR, out)
}

func (d *directory) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n, errno := d.open(ctx, name, os.O_RDWR|os.O_CREATE, out)
	return n, nil, fuse.FOPEN_KEEP_CACHE, errno
}

// open returns the node of a name. It opens the file if there is no node yet.
func (d *directory) open(ctx context.Context, name string, flag int, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[name]
	if f == nil {
		opened, err := d.mem.Open(name, flag, 0o600)
		if err != nil {
			return nil, errnoOf(err)
		}
		f = &file{file: opened}
		d.NewPersistentInode(ctx, f, fs.StableAttr{Mode: syscall.S_IFREG})
		if d.files == nil {
			d.files = map[string]*file{}
		}
		d.files[name] = f
	}
	f.attributes(&out.Attr)
	return &f.Inode, 0
}

func (d *directory) Unlink(_ context.Context, name string) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, name)
	return errnoOf(d.mem.Remove(name))
}

func (d *directory) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	return fs.NewListDirStream(nil), 0
}

func (d *directory) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return errnoOf(d.mem.SyncDir("any"))
}

// file is a regular file.
type file struct {
	fs.Inode
	file vfs.File
}

var (
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
)

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_KEEP_CACHE, 0
}

func (f *file) attributes(a *fuse.Attr) syscall.Errno {
	size, err := f.file.Size()
	if err != nil {
		return errnoOf(err)
	}
	blocks, err := f.file.Blocks()
	a.Mode, a.Size, a.Blocks, a.Blksize = syscall.S_IFREG|0o600, uint64(size), uint64(blocks)/512, 4096
	return errnoOf(err)
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return f.attributes(&out.Attr)
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if err := f.file.Truncate(int64(size)); err != nil {
			return errnoOf(err)
		}
	}
	return f.attributes(&out.Attr)
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := f.file.ReadAt(dest, off)
	if err == io.EOF {
		err = nil
	}
	return fuse.ReadResultData(dest[:n]), errnoOf(err)
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n, err := f.file.WriteAt(data, off)
	return uint32(n), errnoOf(err)
}

func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return errnoOf(f.file.Datasync())
}

func (f *file) Allocate(_ context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	switch mode {
	case 0:
		return errnoOf(f.file.Allocate(int64(off), int64(size)))
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
		return errnoOf(f.file.Punch(int64(off), int64(size)))
	}
	return syscall.EOPNOTSUPP // file systems may do that; callers have another way
}

// errnoOf returns the error number to return to the kernel for an error.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, os.ErrNotExist):
		return syscall.ENOENT
	}
	return syscall.EIO
}

// databaseName is the name of the database in every directory.
const databaseName = "db"

func databaseIn(dir string) string { return path.Join(dir, databaseName) }
