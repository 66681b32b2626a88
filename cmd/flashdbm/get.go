package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const getHelp = `get prints the value of KEY.

A pipe or a file gets exactly the bytes of the value. On a terminal a line end
follows it, and a value that is not printable text is shown in quotes with
escapes. The exit code is 1 if the key does not exist.`

type getCommand struct {
	notation
	spaceFlag
	file string
	json bool
}

func newGetCommand(p *program) *cobra.Command {
	var get getCommand
	cmd := &cobra.Command{
		Use:   "get DATABASE KEY",
		Short: "Print the value of a key",
		Long:  getHelp,
		Example: `  flashdbm get app.fdbm greeting
  flashdbm get app.fdbm logo --file logo.png`,
		Args:              takes(2, 2),
		ValidArgsFunction: p.completeKey(&get.notation, 1),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return get.run(p, cmd, args[0], args[1]) }),
	}
	get.notation.addFlags(cmd)
	get.spaceFlag.addFlags(cmd)
	cmd.Flags().StringVar(&get.file, "file", "", "write the bytes of the value to `FILE`, \"-\" for standard output")
	cmd.Flags().BoolVar(&get.json, "json", false, "print a JSON object with key and value")
	cmd.MarkFlagsMutuallyExclusive("file", "json")
	return cmd
}

func (get *getCommand) run(p *program, cmd *cobra.Command, path, arg string) error {
	key, err := get.parse("key", arg)
	if err != nil {
		return err
	}
	return p.read(cmd.Context(), path, get.within(func(tx *dbm.Tx) error {
		open := func() (io.ReadCloser, int64, error) { return tx.ValueReader(key) }
		r, _, err := open() // before the output file is created
		if errors.Is(err, dbm.ErrNotFound) {
			return &notFoundError{fmt.Sprintf("there is no key %s in %s", get.format(key), path)}
		}
		if err != nil {
			return err
		}
		r.Close()
		expires, err := p.expiry(tx.TTL(key))
		if err != nil {
			return err
		}
		return p.withOutput(path, get.file, func(w *bufio.Writer) error {
			return get.print(p, w, key, expires, open)
		})
	}))
}

// print writes a value in the requested form, piece by piece, because a value may be larger than memory.
func (get *getCommand) print(p *program, w *bufio.Writer, key []byte, expires time.Time, open openValue) error {
	switch {
	case get.json:
		return get.writeJSONRecord(w, key, expires, open)
	case get.file == "" && (get.hex || get.base64):
		if err := get.writeLong(w, open); err != nil {
			return err
		}
		return w.WriteByte('\n')
	case get.file == "" && isTerminal(p.stdout):
		return printForPerson(w, open)
	}
	return withValue(open, func(r io.Reader) error {
		_, err := io.Copy(w, r)
		return err
	})
}

// printForPerson writes a value to a terminal. It escapes bytes that would control the terminal.
func printForPerson(w *bufio.Writer, open openValue) error {
	return withForm(open, func(r io.Reader, form textForm) error {
		if !form.harmless {
			if err := writeQuoted(w, r); err != nil {
				return err
			}
			return w.WriteByte('\n')
		}
		if _, err := io.Copy(w, r); err != nil || form.lineEnd {
			return err
		}
		return w.WriteByte('\n')
	})
}
