package dbm

import (
	"bytes"

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
	initExpiry(db)
	return db, nil
}

// getBeside is DB.Get for a reader beside a writer. In a file with keyspaces a value may have an expiry time before
// it, which only a transaction can interpret, so the value is then read by a View.
func getBeside(db *DB, key []byte) (value []byte, ok bool, err error) {
	value, ok, spaced, err := db.beside.GetCopy(key)
	if !ok || !spaced {
		return value, ok, err
	}
	err = db.View(func(tx *Tx) error {
		v, err := tx.Get(key)
		value = bytes.Clone(v)
		return err
	})
	if err == ErrNotFound {
		return nil, false, nil
	}
	return value, err == nil, err
}

// hasBeside is DB.Has for a reader beside a writer: see getBeside.
func hasBeside(db *DB, key []byte) (ok bool, err error) {
	ok, spaced, err := db.beside.Exists(key)
	if ok && spaced {
		err = db.View(func(tx *Tx) error {
			ok, err = tx.Has(key)
			return err
		})
	}
	return ok, err
}
