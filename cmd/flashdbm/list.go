package main

import (
	"bufio"
	"bytes"
	"iter"

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
	from, to, prefix string
	reverse          bool
	limit            int64
	values           bool
	null, json       bool
}

func newListCommand(p *program) *cobra.Command {
	var list listCommand
	cmd := &cobra.Command{
		Use:   "list DATABASE",
		Short: "Print keys, and values, in order",
		Long:  listHelp,
		Example: `  flashdbm list app.fdbm --prefix user/ --limit 10
  flashdbm list app.fdbm --from 2026-01 --to 2026-02 --values --reverse`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return list.run(p, cmd, args[0]) }),
	}
	list.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&list.from, "from", "", "begin at this `KEY`")
	flags.StringVar(&list.to, "to", "", "end before this `KEY`")
	flags.StringVar(&list.prefix, "prefix", "", "only keys that begin with `KEY`")
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
	bounds, err := list.bounds(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	return p.read(ctx, path, func(tx *dbm.Tx) error {
		return p.withOutput(path, "", func(w *bufio.Writer) error {
			left := list.limit
			for key, value := range bounds.records(tx, list.reverse) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := list.print(w, key, value); err != nil {
					return err
				}
				if left--; left == 0 {
					break
				}
			}
			return nil
		})
	})
}

func (list *listCommand) print(w *bufio.Writer, key, value []byte) error {
	if list.json {
		record := map[string]any{}
		list.addTo(record, "key", key)
		if list.values {
			list.addTo(record, "value", value)
		}
		return printJSON(w, record)
	}
	if list.null {
		w.Write(key)
		return w.WriteByte(0)
	}
	// A bufio.Writer keeps its first error and returns it from then on.
	w.WriteString(list.format(key))
	if list.values {
		w.WriteByte('\t')
		w.WriteString(list.format(value))
	}
	return w.WriteByte('\n')
}

// bounds is the range of keys [from, to); nil is the open end.
type bounds struct {
	from, to []byte
}

// bounds intersects --from and --to with --prefix.
func (list *listCommand) bounds(cmd *cobra.Command) (b bounds, err error) {
	if cmd.Flags().Changed("from") {
		if b.from, err = list.parse("key of --from", list.from); err != nil {
			return b, err
		}
	}
	if cmd.Flags().Changed("to") {
		if b.to, err = list.parse("key of --to", list.to); err != nil {
			return b, err
		}
	}
	prefix, err := list.parse("key of --prefix", list.prefix)
	if err != nil {
		return b, err
	}
	return b.within(prefix), nil
}

// within returns the part of b whose keys begin with prefix.
func (b bounds) within(prefix []byte) bounds {
	if bytes.Compare(prefix, b.from) > 0 {
		b.from = prefix
	}
	if end := prefixEnd(prefix); end != nil && (b.to == nil || bytes.Compare(end, b.to) < 0) {
		b.to = end
	}
	return b
}

// prefixEnd returns the first key after all that begin with prefix, nil if
// there is none.
func prefixEnd(prefix []byte) []byte {
	kept := bytes.TrimRight(prefix, "\xff")
	if len(kept) == 0 {
		return nil
	}
	end := bytes.Clone(kept)
	end[len(end)-1]++
	return end
}

// records iterates over the records of tx within b. Slices are valid until the
// transaction ends.
func (b bounds) records(tx *dbm.Tx, reverse bool) iter.Seq2[[]byte, []byte] {
	if reverse {
		return tx.Backward(b.from, b.to)
	}
	return tx.Range(b.from, b.to)
}
