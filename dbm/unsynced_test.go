package dbm

import (
	"os"

	"flashdbm/logstore/vfs"
)

// unsyncedFS is the real file system without syncs, for tests of many commits without power failures. On a slow
// device, these would spend minutes in syncs.
type unsyncedFS struct{ vfs.FS }

type unsyncedFile struct{ vfs.File }

func (u unsyncedFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := u.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsyncedFS) SyncDir(string) error { return nil }

func (unsyncedFile) Datasync() error { return nil }

func (unsyncedFile) WriteOut(_, _ int64, _ bool) error { return nil }

func (f unsyncedFile) Window(off, n int64) (vfs.Window, error) { return vfs.OpenWindow(f.File, off, n) }

func openUnsynced(path string, opts *Options) (*DB, error) {
	return open(unsyncedFS{vfs.OS()}, path, opts)
}
