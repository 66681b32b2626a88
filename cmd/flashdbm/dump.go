package main

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const dumpHelp = `dump writes all records in the portable text format of Berkeley DB's db_dump and
LMDB's mdb_dump, as of one moment, for "flashdbm load", db_load or mdb_load.

With --print, printable characters stand for themselves, for people to read;
mdb_load before LMDB 0.9.25 misreads that form. mdb_load also wants to be told
how large its file may grow, see the third example.

With --keyspaces the records of all keyspaces follow those of the default one, as
several databases do in a dump of mdb_dump -a, for "flashdbm load --keyspaces".

--json-lines writes a JSON object on each line instead, for programs that do not
read dumps: "key" and "value" with text, key_base64 or value_base64 with bytes that
are not UTF-8, and "expires" with the time of a record that expires. It has no end
mark, so a reader cannot tell that lines are missing at the end. The other forms have
no place for that time: records that are loaded from them do not expire.`

func newDumpCommand(p *program) *cobra.Command {
	var file string
	var printable, asJSONLines bool
	var space spaceFlag
	var all bool
	cmd := &cobra.Command{
		Use:   "dump DATABASE",
		Short: "Write all records as portable text",
		Long:  dumpHelp,
		Example: `  flashdbm dump app.fdbm --file app.dump
  flashdbm dump app.fdbm | db_load app.db
  flashdbm dump app.fdbm | sed '3a mapsize=1073741824' | mdb_load -n app.mdb
  flashdbm dump app.fdbm --json-lines | jq -r .key`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return p.read(cmd.Context(), args[0], space.within(func(tx *dbm.Tx) error {
				return p.withOutput(args[0], file, func(w *bufio.Writer) error {
					if asJSONLines {
						return p.dumpJSONLines(cmd, tx, w)
					}
					if all {
						return p.dumpAll(cmd, tx, w, printable)
					}
					return p.dump(cmd, tx, w, printable, "")
				})
			}))
		}),
	}
	space.addFlags(cmd)
	cmd.Flags().StringVar(&file, "file", "", "write to `FILE` instead of standard output")
	cmd.Flags().BoolVar(&printable, "print", false, "write printable characters as they are")
	cmd.Flags().BoolVar(&asJSONLines, "json-lines", false, "write a JSON object for each record instead of a dump")
	cmd.Flags().BoolVar(&all, "keyspaces", false, "write the default keyspace and all others, one dump after the other")
	for _, other := range []string{"keyspace", "json-lines"} {
		cmd.MarkFlagsMutuallyExclusive("keyspaces", other)
	}
	cmd.MarkFlagsMutuallyExclusive("print", "json-lines")
	return cmd
}

// dumpAll dumps the default keyspace and the others, like mdb_dump -a dumps databases.
func (p *program) dumpAll(cmd *cobra.Command, tx *dbm.Tx, w *bufio.Writer, printable bool) error {
	names := slices.Collect(tx.Keyspaces())
	for _, name := range names { // before anything is written
		if strings.ContainsAny(name, "\n\x00") {
			return fmt.Errorf("the name of the keyspace %q does not fit a line of a dump: give it another one, or dump it by itself", name)
		}
	}
	if err := p.dump(cmd, tx, w, printable, ""); err != nil {
		return err
	}
	for _, name := range names {
		in, err := tx.Keyspace(name)
		if err == nil {
			err = p.dump(cmd, in, w, printable, name)
		}
		if err != nil {
			return err
		}
	}
	return tx.Err()
}

func (p *program) dump(cmd *cobra.Command, tx *dbm.Tx, w *bufio.Writer, printable bool, database string) error {
	dump := newDumpWriter(w, printable, database)
	if err := p.eachRecord(cmd, tx, func(c *dbm.Cursor) error {
		value, _, err := c.ValueReader()
		if err != nil {
			return err
		}
		return closeAfter(value, dump.record(c.Key(), value))
	}); err != nil {
		return err
	}
	// The end mark says that everything before it is complete, so it must not follow an iteration that an
	// error ended early.
	return dump.end()
}

func (p *program) dumpJSONLines(cmd *cobra.Command, tx *dbm.Tx, w *bufio.Writer) error {
	var text notation
	return p.eachRecord(cmd, tx, func(c *dbm.Cursor) error {
		expires, err := p.expiry(c.TTL())
		if err != nil {
			return err
		}
		return text.writeJSONRecord(w, c.Key(), expires, c.ValueReader)
	})
}

// eachRecord calls fn with a cursor on each record, and shows progress.
func (p *program) eachRecord(cmd *cobra.Command, tx *dbm.Tx, fn func(c *dbm.Cursor) error) error {
	count, err := tx.Len()
	if err != nil {
		return err
	}
	line := p.startProgress("dump", formatRecords, count, true)
	defer line.Stop()

	ctx := cmd.Context()
	c := tx.Cursor()
	for c.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(c); err != nil {
			return err
		}
		line.Add(1)
	}
	return c.Err()
}

func formatRecords(n int64) string {
	if n == 1 {
		return "1 record"
	}
	return formatCount(n) + " records"
}
