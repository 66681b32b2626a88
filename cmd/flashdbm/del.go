package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const delHelp = `del deletes each KEY, all in one transaction. The exit code is 1 if one of the
keys was not there; the others are deleted all the same.

With --from, --to and --prefix it deletes all keys of that range, with --all all
keys, in one transaction. However many keys there are, this takes little memory and
little space, also where the disk is full. An empty range is no error.

With --null it deletes the keys on standard input, each ended by a zero byte, as
"list --null" prints them. It reads all keys before it opens the database, so they
may come from a command that reads the same database. It deletes them in several
transactions of at most 1,000 keys: if del fails or is interrupted, the keys of
earlier transactions stay deleted.`

const delExample = `  flashdbm del app.fdbm greeting
  flashdbm del app.fdbm --prefix cache/
  flashdbm list app.fdbm --null | grep -z '[.]tmp$' | flashdbm del app.fdbm --null`

// The most keys of standard input that one transaction deletes, and the most bytes of keys, so that the transaction
// stays in memory.
const (
	delBatchKeys  = 1000
	delBatchBytes = 1 << 20
)

type delCommand struct {
	notation
	spaceFlag
	keyRange
	all, null, json bool

	deleted int64 // so far
	missing missingKeys
}

func newDelCommand(p *program) *cobra.Command {
	var del delCommand
	cmd := &cobra.Command{
		Use:               "del DATABASE [KEY...]",
		Short:             "Delete keys",
		Long:              delHelp,
		Example:           delExample,
		Args:              takes(1, math.MaxInt),
		ValidArgsFunction: p.completeKey(&del.notation, completionLimit),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return del.run(p, cmd, args[0], args[1:]) }),
	}
	del.notation.addFlags(cmd)
	del.spaceFlag.addFlags(cmd)
	del.keyRange.addFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&del.all, "all", false, "delete all keys")
	flags.BoolVarP(&del.null, "null", "0", false, "delete the keys on standard input, each ended by a zero byte")
	flags.BoolVar(&del.json, "json", false, "print how many keys were deleted as a JSON object")
	for _, other := range []string{"from", "to", "prefix", "hex", "base64"} {
		cmd.MarkFlagsMutuallyExclusive("null", other)
	}
	for _, other := range []string{"from", "to", "prefix", "null"} {
		cmd.MarkFlagsMutuallyExclusive("all", other)
	}
	return cmd
}

// delResult is the JSON object of del --json.
type delResult struct {
	Deleted int64 `json:"deleted"`
}

func (del *delCommand) run(p *program, cmd *cobra.Command, path string, args []string) error {
	flags := cmd.Flags()
	ranged := del.all || flags.Changed("from") || flags.Changed("to") || flags.Changed("prefix")
	switch {
	case len(args) > 0 && (ranged || del.null):
		return usagef("give the keys either as arguments or by a flag")
	case len(args) == 0 && !ranged && !del.null:
		return usagef("no key given to %q", cmd.UseLine())
	}
	var err error
	switch {
	case ranged:
		err = del.deleteRange(p, cmd, path)
	case del.null:
		err = del.deleteInput(p, cmd, path)
	default:
		err = del.deleteArguments(p, cmd, path, args)
	}
	if err != nil {
		if del.deleted > 0 {
			err = fmt.Errorf("%w; keys deleted before that: %s", err, formatCount(del.deleted))
		}
		return err
	}
	if del.json {
		if err := printJSON(p.stdout, delResult{del.deleted}); err != nil {
			return err
		}
	}
	return del.missing.err(path)
}

func (del *delCommand) deleteArguments(p *program, cmd *cobra.Command, path string, args []string) error {
	keys := make([][]byte, len(args))
	for i, arg := range args {
		var err error
		if keys[i], err = del.parse("key", arg); err != nil {
			return err
		}
	}
	return p.change(path, func(db *dbm.DB) error { return del.delete(cmd, db, keys) })
}

// delete deletes keys in one transaction.
func (del *delCommand) delete(cmd *cobra.Command, db *dbm.DB, keys [][]byte) error {
	var deleted int64
	var missing missingKeys
	err := db.UpdateContext(cmd.Context(), dbm.TxOptions{}, del.within(func(tx *dbm.Tx) error {
		deleted, missing = 0, del.missing
		for _, key := range keys {
			found, err := tx.Has(key)
			if err != nil {
				return err
			}
			if !found {
				missing.add(del.format(key))
				continue
			}
			if err := tx.Delete(key); err != nil {
				return err
			}
			deleted++
		}
		return nil
	}))
	if err != nil {
		return err
	}
	del.deleted += deleted
	del.missing = missing
	return nil
}

// deleteRange deletes all keys within bounds in one transaction.
func (del *delCommand) deleteRange(p *program, cmd *cobra.Command, path string) error {
	b, err := del.bounds(cmd, &del.notation)
	if err != nil {
		return err
	}
	if len(b.from) == 0 && b.to == nil && !del.all {
		return usagef("that is every key: give --all if all are to be deleted")
	}
	if b.to != nil && bytes.Compare(b.from, b.to) >= 0 {
		return nil
	}
	return p.change(path, func(db *dbm.DB) error {
		var deleted int64
		err := db.UpdateContext(cmd.Context(), dbm.TxOptions{}, del.within(func(tx *dbm.Tx) error {
			before, err := tx.Len()
			if err != nil {
				return err
			}
			if err := tx.DeleteRange(b.from, b.to); err != nil {
				return err
			}
			after, err := tx.Len()
			deleted = before - after
			return err
		}))
		if err == nil {
			del.deleted += deleted
		}
		return err
	})
}

// deleteInput deletes the keys on standard input. It first writes all of them to a temporary file, because the
// program that prints them may have the database open.
func (del *delCommand) deleteInput(p *program, cmd *cobra.Command, path string) error {
	if _, err := os.Stat(path); err != nil {
		return explainMissing(path, err)
	}
	return p.withInput(standardStream, func(input *os.File) error {
		waiting, err := os.CreateTemp("", "flashdbm-keys-*")
		if err != nil {
			return err
		}
		if os.Remove(waiting.Name()) != nil { // at once where the system allows it, so that a killed process leaves nothing behind
			defer os.Remove(waiting.Name())
		}
		defer waiting.Close()
		w := bufio.NewWriterSize(waiting, outputBufferBytes)
		if err := eachKey(untilDone(cmd.Context(), input), func(key []byte) error {
			w.Write(key)
			return w.WriteByte(0)
		}); err != nil {
			return err
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if _, err := waiting.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return p.change(path, func(db *dbm.DB) error {
			line := p.startProgress("del", formatCount, 0, false)
			defer line.Stop()
			var batch [][]byte
			bytes := 0
			flush := func() error {
				err := del.delete(cmd, db, batch)
				line.Add(int64(len(batch)))
				batch, bytes = batch[:0], 0
				return err
			}
			if err := eachKey(waiting, func(key []byte) error {
				batch = append(batch, append([]byte(nil), key...))
				if bytes += len(key); len(batch) < delBatchKeys && bytes < delBatchBytes {
					return nil
				}
				return flush()
			}); err != nil {
				return err
			}
			return flush()
		})
	})
}

// eachKey calls fn with each key of r, without its zero byte.
func eachKey(r io.Reader, fn func(key []byte) error) error {
	in := bufio.NewReaderSize(r, maxKeyBytes+1)
	for n := 1; ; n++ {
		key, err := in.ReadSlice(0)
		switch {
		case err == bufio.ErrBufferFull:
			return fmt.Errorf("key %d on standard input: %w; is each ended by a zero byte, as by list --null?", n, dbm.ErrKeyTooLarge)
		case err == io.EOF && len(key) > 0:
			return fmt.Errorf("standard input ends within key %d, before its zero byte: it was cut short, or is not from list --null", n)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := fn(key[:len(key)-1]); err != nil {
			return err
		}
	}
}

// missingKeys are keys that were not found: the first few, and their number.
type missingKeys struct {
	shown []string
	count int64
}

const shownKeys = 10

func (m *missingKeys) add(key string) {
	if m.count++; m.count <= shownKeys {
		m.shown = append(m.shown[:len(m.shown):len(m.shown)], key)
	}
}

func (m *missingKeys) err(path string) error {
	if m.count == 0 {
		return nil
	}
	keys := strings.Join(m.shown, ", ")
	if more := m.count - int64(len(m.shown)); more > 0 {
		keys += fmt.Sprintf(" and %s more", formatCount(more))
	}
	return &notFoundError{fmt.Sprintf("there is no key %s in %s", keys, path)}
}
