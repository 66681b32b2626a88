package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// A load commits after this many records or bytes: many enough that the cost of the commits is small, and few
// enough that the transaction stays in memory.
const (
	loadBatchRecords = 1000
	loadBatchBytes   = 4 << 20
)

const loadHelp = `load reads a dump in the portable text format of "flashdbm dump", Berkeley DB's
db_dump and LMDB's mdb_dump, and stores its records, in place of values that were
there. It creates the database if there is none.

A dump in a file is read once to the end before anything is stored, so a damaged
or refused one changes nothing. One that comes through a pipe is stored as it is
read; with --atomic in one transaction, all of it or nothing. When load returns,
everything is on the disk.

With --bulk an empty database is written from its beginning to its end, several
times as fast, and all of the records are stored or none. Records in the order of
their keys, as "flashdbm dump" writes them, are written as they are read; others
are sorted in the database's file first. So is an empty keyspace (--keyspace), also
beside the records of others. Into a database or a keyspace that has records, --bulk
is one transaction, and no faster than that. With --replace the records take the
place of everything that the database or the keyspace had, and a keyspace that is
not there is made: readers see all of the old records or all of the new ones.

With --keyspaces the dump may be of several databases, as those of "flashdbm dump
--keyspaces" and mdb_dump -a. The records of each go to the keyspace of its name,
which is made if there is none; those of a database without a name go to the default
keyspace.

--json-lines reads a JSON object on each line instead: "key" and "value" with
text, or key_hex, key_base64, value_hex, value_base64 with bytes, as "dump
--json-lines" and "list --values --json" write them. Records with "expires" expire
at that time; those whose time is over are left out. There is no end mark, so load
cannot tell that lines are missing at the end. A line takes memory, up to six times
its length.`

type loadCommand struct {
	spaceFlag
	file      string
	atomic    bool
	json      bool
	jsonLines bool
	bulk      bool
	replace   bool
	several   bool
}

// recordReader is the source of the records of a load: a dumpReader, or jsonLines.
type recordReader interface {
	next() (key, value []byte, err error) // io.EOF after the last record
	until() time.Time                     // when the last record expires; zero if it does not
	long() bool                           // the value has more bytes, which Read returns
	io.Reader
}

// open returns a reader of the records in a file. It returns an error if the beginning of
// the file is not that of a dump.
func (load *loadCommand) open(file io.Reader) (recordReader, error) {
	if load.jsonLines {
		return newJSONLines(file), nil
	}
	dump, err := newDumpReader(file)
	if err != nil {
		return nil, err
	}
	dump.several = load.several
	return dump, nil
}

func newLoadCommand(p *program) *cobra.Command {
	var load loadCommand
	cmd := &cobra.Command{
		Use:   "load DATABASE",
		Short: "Store all records of a dump",
		Long:  loadHelp,
		Example: `  flashdbm load app.fdbm --file app.dump
  db_dump app.db | flashdbm load app.fdbm
  mdb_dump -n app.mdb | flashdbm load app.fdbm
  flashdbm load app.fdbm --bulk --keyspace prices --replace --file prices.dump
  echo '{"key": "apple", "value": "red"}' | flashdbm load app.fdbm --json-lines`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return p.withInput(load.file, func(file *os.File) error { return load.run(p, cmd, args[0], file) })
		}),
	}
	load.addFlags(cmd)
	cmd.Flags().StringVar(&load.file, "file", "", "read from `FILE` instead of standard input")
	cmd.Flags().BoolVar(&load.atomic, "atomic", false, "store everything in one transaction")
	cmd.Flags().BoolVar(&load.bulk, "bulk", false, "fill an empty database at once, all or nothing, several times as fast")
	cmd.MarkFlagsMutuallyExclusive("atomic", "bulk")
	cmd.Flags().BoolVar(&load.several, "keyspaces", false, "load each of several databases into the keyspace of its name")
	cmd.Flags().BoolVar(&load.replace, "replace", false, "with --bulk: in place of all that is there")
	cmd.Flags().BoolVar(&load.jsonLines, "json-lines", false, "read a JSON object on each line instead of a dump")
	for _, other := range []string{"keyspace", "bulk", "json-lines"} {
		cmd.MarkFlagsMutuallyExclusive("keyspaces", other)
	}
	cmd.Flags().BoolVar(&load.json, "json", false, "print the number of records and bytes as a JSON object")
	return cmd
}

// loadResult is the JSON object of load --json. Bytes counts keys and values.
type loadResult struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
}

func (load *loadCommand) run(p *program, cmd *cobra.Command, path string, file *os.File) error {
	if load.replace && !load.bulk {
		return usagef("--replace is of --bulk")
	}
	if load.bulk {
		return load.runBulk(p, cmd, path, file)
	}
	total, err := load.rehearse(p, cmd, file)
	if err != nil {
		return err
	}
	// The header is read before the database is created.
	dump, err := load.open(untilDone(cmd.Context(), file))
	if err != nil {
		return err
	}
	loader := &loader{dump: dump, atomic: load.atomic, space: load.spaceFlag}
	loader.line = p.startProgress("load", formatBytes, total, false)
	// load reports no commit before the end, so one sync at the end is enough.
	err = p.withDatabase(path, dbm.Options{Durability: dbm.Buffered}, func(db *dbm.DB) error {
		if load.several {
			loader.several = dump.(*dumpReader)
			if err := db.EnableKeyspaces(); err != nil {
				return err
			}
		}
		return errors.Join(loader.run(cmd, db), db.Sync())
	})
	loader.line.Stop()
	if err != nil {
		if loader.stored.Records > 0 {
			err = fmt.Errorf("%w; the first %s are stored, and loading again after a correction stores them again",
				err, formatRecords(loader.stored.Records))
		}
		return err
	}
	if load.json {
		return printJSON(p.stdout, loader.stored)
	}
	return nil
}

// rehearse reads a dump to its end, if it can be read twice, and returns the bytes of keys and values; 0 if it
// cannot be read twice.
func (load *loadCommand) rehearse(p *program, cmd *cobra.Command, file *os.File) (total int64, err error) {
	status, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if !status.Mode().IsRegular() {
		return 0, nil
	}
	// A shell may have read the beginning of standard input already.
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	dump, err := load.open(untilDone(cmd.Context(), file))
	if err != nil {
		return 0, err
	}
	line := p.startProgress("read", formatBytes, 0, false)
	defer line.Stop()
	for {
		if err := cmd.Context().Err(); err != nil {
			return 0, err
		}
		key, value, err := dump.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		n := int64(len(key) + len(value))
		if dump.long() {
			rest, err := io.Copy(io.Discard, dump)
			if err != nil {
				return 0, err
			}
			n += rest
		}
		total += n
		line.Add(n)
	}
	_, err = file.Seek(start, io.SeekStart)
	return total, err
}

// loader moves the records of a dump into a database.
type loader struct {
	dump   recordReader
	atomic bool
	space  spaceFlag
	line   *progress

	several *dumpReader // nil, or the same as dump: its header tells the keyspace

	stored loadResult // committed
	batch  loadResult // in the open transaction

	held *timedRecord // a record that was read but not put, because EnableExpiry has to be called between two transactions; nil for none
}

// timedRecord is a record that expires.
type timedRecord struct {
	key, value []byte
	until      time.Time
}

// put puts the record, unless it has expired. PutTTL adds the time that is left to the time of its own call, so the record
// is put again if the clock has gone on by a millisecond meanwhile.
func (r *timedRecord) put(tx *dbm.Tx) (expired bool, err error) {
	for range beginTries {
		now := time.Now().Truncate(time.Millisecond)
		if !r.until.After(now) {
			return true, nil
		}
		err = tx.PutTTL(r.key, r.value, r.until.Sub(now))
		if err != nil || time.Since(now) < time.Millisecond {
			break
		}
	}
	return false, err
}

// run commits batch after batch until the dump ends. Its transactions read nothing, so they do not conflict.
func (l *loader) run(cmd *cobra.Command, db *dbm.DB) error {
	for more := true; more; {
		if l.held != nil {
			if err := db.EnableExpiry(); err != nil {
				return err
			}
		}
		tx, err := db.Begin(dbm.TxOptions{})
		if err != nil {
			return err
		}
		in, err := l.space.of(tx)
		if err == nil {
			more, err = l.fill(cmd, in)
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		l.stored.Records += l.batch.Records
		l.stored.Bytes += l.batch.Bytes
		l.batch = loadResult{}
	}
	return nil
}

// fill puts records into tx until the batch is full (more is true) or the dump ends.
func (l *loader) fill(cmd *cobra.Command, tx *dbm.Tx) (more bool, err error) {
	whole, name := tx, "" // tx is of the keyspace called name, if there are several
	if l.held != nil {
		expired, err := l.held.put(tx)
		if err != nil {
			return false, err
		}
		if !expired {
			l.batch.Records++
			l.batch.Bytes += int64(len(l.held.key) + len(l.held.value))
		}
		l.held = nil
	}
	for {
		if err := cmd.Context().Err(); err != nil {
			return false, err
		}
		key, value, err := l.dump.next()
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		n := int64(len(key) + len(value))
		if l.several != nil && l.several.header.database != name {
			name = l.several.header.database
			if tx, err = spaceOrNew(whole, name); err != nil {
				return false, err
			}
		}
		expired := false
		if until := l.dump.until(); !until.IsZero() {
			record := &timedRecord{key, value, until}
			if expired, err = record.put(tx); errors.Is(err, dbm.ErrNoExpiry) {
				if l.atomic {
					return false, fmt.Errorf("%w; load without --atomic, which does", err)
				}
				l.held = record
				return true, nil
			}
		} else if l.dump.long() {
			rest := &watchedReader{ctx: cmd.Context(), r: l.dump}
			err = tx.PutReader(key, io.MultiReader(bytes.NewReader(value), rest), dbm.UnknownSize)
			n += rest.n
		} else {
			err = tx.Put(key, value)
		}
		if err != nil {
			return false, err
		}
		l.line.Add(n)
		if expired {
			continue
		}
		l.batch.Records++
		l.batch.Bytes += n
		if !l.atomic && (l.batch.Records >= loadBatchRecords || l.batch.Bytes >= loadBatchBytes) {
			return true, nil
		}
	}
}

// spaceOrNew returns the transaction as one of the named keyspace, which it creates if there is none; without a
// name, of the default keyspace.
func spaceOrNew(tx *dbm.Tx, name string) (*dbm.Tx, error) {
	if name == "" {
		return tx, nil
	}
	in, err := tx.Keyspace(name)
	if errors.Is(err, dbm.ErrNoKeyspace) {
		return tx.CreateKeyspace(name)
	}
	return in, err
}
