// The command flashdbm-import copies the records of bbolt, Badger and cdb files into a new flashdbm database, and writes cdb files. It is a
// module of its own, so that flashdbm itself does not get the libraries of the others.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const help = `flashdbm-import copies all records of another store into a new flashdbm database.

The source is only read, and must not be open in another program. The database
must not exist yet: it appears under its name once it is whole and on the disk,
so an import that fails or is interrupted leaves nothing behind. What the source
has and a flashdbm database has no place for is said on standard error.

Exit codes: 0 done, 2 wrong usage, 3 any other error.`

// Exit codes, as those of flashdbm.
const (
	exitUsage = 2
	exitError = 3
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string) int {
	began := false
	root := newRoot(&began)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "flashdbm-import: %v\n", err)
	if !began {
		return exitUsage
	}
	return exitError
}

// newRoot returns the command; began is set once the command line was understood.
func newRoot(began *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "flashdbm-import",
		Short: "Copy the records of bbolt, Badger and cdb into flashdbm", Long: help,
		SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
	}
	root.AddCommand(newBboltCommand(began), newBadgerCommand(began), newFromCdbCommand(began), newToCdbCommand(began))
	return root
}

// withSource marks the end of command line parsing, and turns a panic of a source's library into an error: bbolt's panics on damaged pages.
func withSource(began *bool, fn func(ctx context.Context, source, target string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		*began = true
		defer recovered(args[0], &err)
		return fn(cmd.Context(), args[0], args[1])
	}
}
