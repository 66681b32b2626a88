package dbm

import (
	"flashdbm/internal/beside"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

func openBeside(fs vfs.FS, path string, opts mvcc.Options) (*DB, error) {
	f, err := beside.Open(fs, path, opts)
	if err != nil {
		return nil, public(err)
	}
	db := &DB{beside: f, events: opts.Events}
	db.keyspaces.db = db
	return db, nil
}
