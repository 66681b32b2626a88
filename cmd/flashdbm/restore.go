package main

import (
	"fmt"
	"io"
	"os"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const restoreHelp = `restore makes a new database of a backup that "flashdbm backup" or DB.Backup has
written. It verifies every byte of the backup before the database appears: a
backup that was cut short or changed makes no database. It never writes over a file.

With --increment it applies what "flashdbm backup --since" has written, one
increment after the other in the order given. Each increment must begin at the token
of the one before it, or at an earlier token. restore prints the token of the
database that it has made.`

func newRestoreCommand(p *program) *cobra.Command {
	var file string
	var increments []string
	cmd := &cobra.Command{
		Use:   "restore DATABASE",
		Short: "Make a new database of a backup",
		Long:  restoreHelp,
		Example: `  flashdbm restore app.fdbm --file app.backup
  flashdbm restore app.fdbm --file app.backup --increment monday --increment tuesday
  zstdcat app.backup.zst | flashdbm restore app.fdbm`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return p.withInput(file, func(f *os.File) error {
				total := int64(0)
				if status, err := f.Stat(); err == nil && status.Mode().IsRegular() {
					total = status.Size()
				}
				line := p.startProgress("restore", formatBytes, total, false)
				defer line.Stop()
				var more []io.Reader
				for _, name := range increments {
					increment, err := os.Open(name)
					if err != nil {
						return err
					}
					defer increment.Close()
					more = append(more, increment)
				}
				token, err := dbm.Restore(cmd.Context(), args[0], &countingReader{r: untilDone(cmd.Context(), f), line: line}, more...)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(p.stdout, "%s: token %s\n", args[0], token)
				return err
			})
		}),
	}
	cmd.Flags().StringArrayVar(&increments, "increment", nil, "apply the increment in `FILE` too; may be given several times")
	cmd.Flags().StringVar(&file, "file", "", "read the backup from `FILE` instead of standard input")
	return cmd
}

// countingReader adds what is read to a progress line.
type countingReader struct {
	r    io.Reader
	line *progress
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.line.Add(int64(n))
	return n, err
}
