package dbm

import (
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

func openBeside(fs vfs.FS, path string, opts mvcc.Options) (*DB, error) {
	f, err := mvcc.OpenFollower(fs, path, opts)
	if err != nil {
		return nil, public(err)
	}
	return &DB{beside: f}, nil
}
