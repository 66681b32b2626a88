package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// runBulk loads all records in one step. It first assumes that a file is in key order. If that proves wrong, it
// reads the file again from its beginning and sorts the records. The records of a pipe, which cannot be read
// twice, are always sorted.
func (load *loadCommand) runBulk(p *program, cmd *cobra.Command, path string, file *os.File) error {
	start, again := int64(0), false
	total := int64(0)
	if status, err := file.Stat(); err == nil && status.Mode().IsRegular() {
		if start, err = file.Seek(0, io.SeekCurrent); err != nil { // a shell may have read the beginning of standard input already
			return err
		}
		total, again = status.Size()-start, true
	}
	var loaded loadResult
	// The header is read before the database is created.
	dump, err := load.open(untilDone(cmd.Context(), file))
	if err != nil {
		return err
	}
	err = p.withDatabase(path, dbm.Options{Durability: dbm.Buffered}, func(db *dbm.DB) error {
		loaded, err = load.bulkOnce(p, cmd, db, dump, total, dbm.LoadOptions{Sorted: again, Replace: load.replace})
		if !again || !errors.Is(err, dbm.ErrOrder) {
			return err
		}
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return err
		}
		if dump, err = load.open(file); err != nil {
			return err
		}
		loaded, err = load.bulkOnce(p, cmd, db, dump, total, dbm.LoadOptions{Replace: load.replace})
		return err
	})
	if err != nil || !load.json {
		return err
	}
	return printJSON(p.stdout, loaded)
}

// bulkOnce loads the records of dump; total is the size of the file in bytes, 0 if unknown.
func (load *loadCommand) bulkOnce(p *program, cmd *cobra.Command, db *dbm.DB, dump recordReader, total int64, opts dbm.LoadOptions) (loaded loadResult, err error) {
	line := p.startProgress("load", formatBytes, total/2, false) // a dump has two digits for each byte
	defer line.Stop()
	ctx, fail := context.WithCancelCause(cmd.Context())
	defer fail(nil)
	var whole bytes.Buffer
	into := db.Load
	if load.name != "" {
		into = db.Keyspace(load.name).Load
	}
	err = into(ctx, func(yield func(key, value []byte) bool) {
		for {
			key, value, err := dump.next()
			if err == io.EOF {
				return
			}
			if err == nil && !dump.until().IsZero() {
				err = errors.New("there are records that expire: load without --bulk")
			}
			if err == nil && dump.long() {
				whole.Reset()
				whole.Write(value)
				_, err = whole.ReadFrom(dump)
				value = whole.Bytes()
			}
			if err != nil {
				fail(err)
				return
			}
			if !yield(key, value) {
				return
			}
			loaded.Records++
			loaded.Bytes += int64(len(key) + len(value))
			line.Add(int64(len(key) + len(value)))
		}
	}, opts)
	return loaded, err
}
