package main

import (
	"io"
	"os"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const restoreHelp = `restore makes a new database of a backup that "flashdbm backup" or DB.Backup has
written. Every byte of it is verified before the database is there: of a backup
that was cut short or changed nothing comes. It never writes over a file.`

func newRestoreCommand(p *program) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore DATABASE",
		Short: "Make a new database of a backup",
		Long:  restoreHelp,
		Example: `  flashdbm restore app.fdbm --file app.backup
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
				return dbm.Restore(cmd.Context(), args[0], &countingReader{r: f, line: line})
			})
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "read the backup from `FILE` instead of standard input")
	return cmd
}

// countingReader tells a progress line what is read.
type countingReader struct {
	r    io.Reader
	line *progress
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.line.Add(int64(n))
	return n, err
}
