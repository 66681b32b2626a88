package main

import (
	"bufio"
	"io"
	"slices"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const listHelp = `list prints the keys of a database in order, one on a line, with --values each
followed by a tab and its value.

A key or value that is not printable text, or that is empty, begins with a
quote or has a space at an end, is written in quotes with escapes, on a terminal
and in a pipe alike, so that a line is always one record. --null prints the
bytes of each key and a zero byte instead, for "xargs -0". --json prints one
object a line; bytes that are not UTF-8 appear as key_base64 or value_base64.`

type listCommand struct {
	notation
	spaceFlag
	keyRange
	reverse    bool
	limit      int64
	values     bool
	null, json bool

	value []byte // memory for a value
}

func newListCommand(p *program) *cobra.Command {
	var list listCommand
	cmd := &cobra.Command{
		Use:     "list DATABASE",
		Aliases: []string{"ls"},
		Short:   "Print keys, and values, in order",
		Long:    listHelp,
		Example: `  flashdbm list app.fdbm --prefix user/ --limit 10
  flashdbm list app.fdbm --from 2026-01 --to 2026-02 --values --reverse`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return list.run(p, cmd, args[0]) }),
	}
	list.notation.addFlags(cmd)
	list.spaceFlag.addFlags(cmd)
	list.keyRange.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&list.reverse, "reverse", false, "last key first")
	flags.Int64Var(&list.limit, "limit", 0, "at most `N` records; 0 for all")
	flags.BoolVar(&list.values, "values", false, "print the values too")
	flags.BoolVarP(&list.null, "null", "0", false, "print the bytes of each key, ended by a zero byte")
	flags.BoolVar(&list.json, "json", false, "print a JSON object for each record")
	for _, other := range []string{"json", "values", "hex", "base64"} {
		cmd.MarkFlagsMutuallyExclusive("null", other)
	}
	return cmd
}

func (list *listCommand) run(p *program, cmd *cobra.Command, path string) error {
	if list.limit < 0 {
		return usagef("--limit must not be negative")
	}
	bounds, err := list.bounds(cmd, &list.notation)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return p.read(ctx, path, list.within(func(tx *dbm.Tx) error {
		return p.withOutput(path, "", func(w *bufio.Writer) error {
			left := list.limit
			c := tx.Cursor()
			for ok := bounds.first(c, list.reverse); ok; ok = bounds.next(c, list.reverse) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := list.print(p, w, c); err != nil {
					return err
				}
				if left--; left == 0 {
					break
				}
			}
			return c.Err()
		})
	}))
}

// print writes the record under the cursor.
func (list *listCommand) print(p *program, w *bufio.Writer, c *dbm.Cursor) error {
	// A bufio.Writer keeps its first error and returns it from then on.
	key := c.Key()
	switch {
	case c.Err() != nil:
		return c.Err()
	case list.json && list.values:
		expires, err := p.expiry(c.TTL())
		if err != nil {
			return err
		}
		return list.writeJSONRecord(w, key, expires, c.ValueReader)
	case list.json:
		record := map[string]any{}
		list.addTo(record, "key", key)
		return printJSON(w, record)
	case list.null:
		w.Write(key)
		return w.WriteByte(0)
	}
	w.WriteString(list.format(key))
	if list.values {
		w.WriteByte('\t')
		if err := list.printValue(w, c); err != nil {
			return err
		}
	}
	return w.WriteByte('\n')
}

func (list *listCommand) printValue(w *bufio.Writer, c *dbm.Cursor) error {
	r, size, err := c.ValueReader()
	if err != nil {
		return err
	}
	if size > heldBytes {
		return closeAfter(r, list.writeLong(w, c.ValueReader))
	}
	if list.value, err = readInto(list.value, r, size); err == nil {
		_, err = w.WriteString(list.format(list.value))
	}
	return closeAfter(r, err)
}

// readInto reads size bytes into buf, which it reallocates if it is too small.
func readInto(buf []byte, r io.Reader, size int64) ([]byte, error) {
	buf = slices.Grow(buf[:0], int(size))[:size]
	_, err := io.ReadFull(r, buf)
	return buf, err
}
