package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// maxValueBytes is the longest value of a database. It bounds how much of an endless input put and
// load read.
const maxValueBytes = 4 << 30

const putHelp = `put stores VALUE under KEY, in place of any value that was there, and creates
the database if there is none. Without VALUE the value is read from standard
input, with --file from a file, in both cases byte for byte.

When put returns, the value is on the disk. A value from standard input or a file
takes at most 16 MiB of memory. A longer value is stored while it is read, and the
database is open meanwhile: if the value comes through a pipe from a command that
reads the same database, that command needs --beside.

With --ttl the record expires after that time: no command finds it any more, and
its space comes back when a program writes to the database later. Versions of
flashdbm that do not know expiry refuse a database that has had such a record.`

type putCommand struct {
	notation
	spaceFlag
	file string
	ttl  time.Duration
}

func newPutCommand(p *program) *cobra.Command {
	var put putCommand
	cmd := &cobra.Command{
		Use:   "put DATABASE KEY [VALUE]",
		Short: "Store a value under a key",
		Long:  putHelp,
		Example: `  flashdbm put app.fdbm greeting "good morning"
  flashdbm put app.fdbm logo --file logo.png
  flashdbm put app.fdbm session/17 ann --ttl 30m
  date | flashdbm put app.fdbm started`,
		Args:              takes(2, 3),
		ValidArgsFunction: p.completeKey(&put.notation, 1),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return put.run(p, cmd, args) }),
	}
	put.notation.addFlags(cmd)
	put.spaceFlag.addFlags(cmd)
	cmd.Flags().StringVar(&put.file, "file", "", "read the bytes of the value from `FILE`, \"-\" for standard input")
	cmd.Flags().DurationVar(&put.ttl, "ttl", 0, "have the record expire after `TIME`, for example 90s or 24h")
	return cmd
}

func (put *putCommand) run(p *program, cmd *cobra.Command, args []string) error {
	key, err := put.parse("key", args[1])
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("ttl") && put.ttl <= 0 {
		return usagef("--ttl must be more than 0")
	}
	if len(args) > 2 {
		if put.file != "" {
			return usagef("give the value either as an argument or with --file")
		}
		value, err := put.parse("value", args[2])
		if err != nil {
			return err
		}
		return p.withDatabase(args[0], dbm.Options{}, func(db *dbm.DB) error { return put.store(db, key, value) })
	}
	return p.withInput(put.file, func(file *os.File) error { return put.from(p, cmd, args[0], key, file) })
}

func (put *putCommand) store(db *dbm.DB, key, value []byte) error {
	switch {
	case put.name != "" && put.ttl > 0:
		return db.Keyspace(put.name).PutTTL(key, value, put.ttl)
	case put.name != "":
		return db.Keyspace(put.name).Put(key, value)
	case put.ttl > 0:
		return db.PutTTL(key, value, put.ttl)
	}
	return db.Put(key, value)
}

// firstBytes is how much of a value put reads before it opens the database. If a value from another command is
// shorter, that command has ended by then.
const firstBytes = 16 << 20

// from stores the content of file.
func (put *putCommand) from(p *program, cmd *cobra.Command, path string, key []byte, file *os.File) error {
	if len(key) > maxKeyBytes {
		return dbm.ErrKeyTooLarge
	}
	if err := refuseLongFile(file); err != nil {
		return err
	}
	input := &watchedReader{ctx: cmd.Context(), r: untilDone(cmd.Context(), file)}
	first, err := io.ReadAll(io.LimitReader(input, firstBytes))
	if err != nil {
		return err
	}
	return p.withDatabase(path, dbm.Options{}, func(db *dbm.DB) error {
		if len(first) < firstBytes {
			return put.store(db, key, first)
		}
		if put.ttl > 0 {
			return fmt.Errorf("a record that expires may have a value of %s on the command line", formatBytes(firstBytes-1))
		}
		tx, err := db.Begin(dbm.TxOptions{}) // there is no other writer, so it never conflicts
		if err != nil {
			return err
		}
		in, err := put.of(tx)
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := in.PutReader(key, io.MultiReader(bytes.NewReader(first), input), dbm.UnknownSize); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// refuseLongFile returns an error if the file is known to be too long for a value. A file may also be longer than
// its status says: files in /proc have length 0.
func refuseLongFile(file *os.File) error {
	status, err := file.Stat()
	if err != nil || !status.Mode().IsRegular() {
		return err
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if status.Size()-at > maxValueBytes {
		return fmt.Errorf("%w: %s has %s", dbm.ErrValueTooLarge, file.Name(), formatBytes(status.Size()-at))
	}
	return nil
}

// watchedReader counts the bytes read from r, and fails when its context ends.
type watchedReader struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (w *watchedReader) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.r.Read(p)
	w.n += int64(n)
	return n, err
}
