package main

import (
	"io"
	"os"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// maxValueBytes is the longest value that a database takes. It bounds what put
// and load hold of input that does not end.
const maxValueBytes = 4 << 30

const putHelp = `put stores VALUE under KEY, in place of any value that was there, and creates
the database if there is none. Without VALUE the value is read from standard
input, with --file from a file, in both cases byte for byte.

When put returns, the value is on the disk.`

type putCommand struct {
	notation
	file string
}

func newPutCommand(p *program) *cobra.Command {
	var put putCommand
	cmd := &cobra.Command{
		Use:   "put DATABASE KEY [VALUE]",
		Short: "Store a value under a key",
		Long:  putHelp,
		Example: `  flashdbm put app.fdbm greeting "good morning"
  flashdbm put app.fdbm logo --file logo.png
  date | flashdbm put app.fdbm started`,
		Args:              takes(2, 3),
		ValidArgsFunction: p.completeKey(&put.notation, 1),
		RunE:              p.command(func(_ *cobra.Command, args []string) error { return put.run(p, args) }),
	}
	put.addFlags(cmd)
	cmd.Flags().StringVar(&put.file, "file", "", "read the bytes of the value from `FILE`, \"-\" for standard input")
	return cmd
}

func (put *putCommand) run(p *program, args []string) error {
	key, err := put.parse("key", args[1])
	if err != nil {
		return err
	}
	value, err := put.value(p, args[2:])
	if err != nil {
		return err
	}
	return p.withDatabase(args[0], dbm.Options{}, func(db *dbm.DB) error {
		return db.Put(key, value)
	})
}

func (put *putCommand) value(p *program, args []string) (value []byte, err error) {
	if len(args) > 0 {
		if put.file != "" {
			return nil, usagef("give the value either as an argument or with --file")
		}
		return put.parse("value", args[0])
	}
	err = p.withInput(put.file, func(file *os.File) error {
		// One byte more than allowed, so that too long is seen as such.
		value, err = io.ReadAll(io.LimitReader(file, maxValueBytes+1))
		return err
	})
	return value, err
}
