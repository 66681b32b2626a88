package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const getHelp = `get prints the value of KEY.

Into a pipe or a file go exactly the bytes of the value. On a terminal a line
end follows it, and a value that is not printable text is shown in quotes with
escapes. The exit code is 1 if the key is not there.`

type getCommand struct {
	notation
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
	get.addFlags(cmd)
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
	return p.read(cmd.Context(), path, func(tx *dbm.Tx) error {
		value, size, err := tx.ValueReader(key)
		if errors.Is(err, dbm.ErrNotFound) {
			return &notFoundError{fmt.Sprintf("there is no key %s in %s", get.format(key), path)}
		}
		if err != nil {
			return err
		}
		defer value.Close()
		return p.withOutput(path, get.file, func(w *bufio.Writer) error {
			return get.print(p, w, key, value, size)
		})
	})
}

// print writes a value of size bytes in the form that was asked for, in one
// pass where the form allows it, because a value may be larger than memory.
func (get *getCommand) print(p *program, w *bufio.Writer, key []byte, value io.Reader, size int64) error {
	switch {
	case get.json:
		whole, err := readSized(value, size)
		if err != nil {
			return err
		}
		record := map[string]any{}
		get.addTo(record, "key", key)
		get.addTo(record, "value", whole)
		return printJSON(w, record)
	case get.file != "":
		_, err := io.Copy(w, value)
		return err
	case get.hex, get.base64:
		encoder := get.encoder(w)
		_, err := io.Copy(encoder, value)
		if err = errors.Join(err, encoder.Close()); err != nil {
			return err
		}
		return w.WriteByte('\n')
	case isTerminal(p.stdout):
		whole, err := readSized(value, size)
		if err != nil {
			return err
		}
		return printForPerson(w, whole)
	default:
		_, err := io.Copy(w, value)
		return err
	}
}

// printForPerson writes a value to a terminal, which its bytes must not command.
func printForPerson(w *bufio.Writer, value []byte) error {
	shown := string(value)
	if !harmless(value) {
		shown = quoted(value)
	}
	if _, err := w.WriteString(shown); err != nil {
		return err
	}
	if bytes.HasSuffix(value, []byte("\n")) && harmless(value) {
		return nil
	}
	return w.WriteByte('\n')
}

func readSized(r io.Reader, size int64) ([]byte, error) {
	whole := make([]byte, size)
	_, err := io.ReadFull(r, whole)
	return whole, err
}
