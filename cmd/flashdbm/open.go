package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"flashdbm/dbm"
)

// read runs fn on one snapshot of the database at path, opened read-only, and sets p.began.
func (p *program) read(ctx context.Context, path string, fn func(tx *dbm.Tx) error) error {
	return p.inspect(path, func(db *dbm.DB) error {
		for left := beginTries; ; left-- {
			begun := false
			p.began = time.Now().Truncate(time.Millisecond)
			err := db.ViewContext(ctx, func(tx *dbm.Tx) error {
				if begun = left == 1 || time.Since(p.began) < time.Millisecond; begun {
					return fn(tx)
				}
				return nil
			})
			if begun || err != nil {
				return err
			}
		}
	})
}

// beginTries is how often read begins a transaction until one begins within a millisecond of the clock. Times of
// records are in milliseconds, so the time that is left of a record, added to p.began, is then exactly its time. After
// the last try it may be some milliseconds earlier.
const beginTries = 10

// inspect runs fn on the database at path, opened read-only.
func (p *program) inspect(path string, fn func(db *dbm.DB) error) error {
	return p.withDatabase(path, dbm.Options{ReadOnly: true, Beside: p.beside}, fn)
}

// change runs fn on the database at path, which must exist: a command that only removes things must not create an
// empty database at a mistyped path.
func (p *program) change(path string, fn func(db *dbm.DB) error) error {
	if _, err := os.Stat(path); err != nil {
		return explainMissing(path, err)
	}
	return p.withDatabase(path, dbm.Options{}, fn)
}

// withDatabase opens the database at path, runs fn and closes the database. An error of Close is returned too,
// because the last data may not have reached the disk.
func (p *program) withDatabase(path string, opts dbm.Options, fn func(db *dbm.DB) error) (err error) {
	if p.beside && !opts.ReadOnly {
		return usagef("--beside is for commands that only read")
	}
	opts.Events = func(dbm.Event) {} // silent: the command's error is enough for the user
	db, err := p.open(path, &opts)
	if err != nil {
		return explainMissing(path, err)
	}
	defer func() {
		if cerr := db.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}()
	return fn(db)
}

// open opens a database. It returns early when the first signal comes: Open may wait for another process, or read a
// long log.
func (p *program) open(path string, opts *dbm.Options) (*dbm.DB, error) {
	opts.LockTimeout = p.wait
	type opened struct {
		db  *dbm.DB
		err error
	}
	done := make(chan opened)
	go func() {
		db, err := dbm.Open(path, opts)
		select {
		case done <- opened{db, err}:
		case <-p.ctx.Done():
			if err == nil {
				db.Close()
			}
		}
	}()
	select {
	case o := <-done:
		return o.db, o.err
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func explainMissing(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(path)
		if _, derr := os.Stat(dir); derr != nil {
			return fmt.Errorf("there is no directory %s: make it first", dir)
		}
		if link, lerr := os.Readlink(path); lerr == nil {
			return fmt.Errorf("%s is a symbolic link to %s, which is not there", path, link)
		}
		return fmt.Errorf("there is no database at %s; \"flashdbm put\" and \"flashdbm load\" create one", path)
	}
	return err
}
