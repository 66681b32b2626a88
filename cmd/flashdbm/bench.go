package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

const benchHelp = `bench measures how fast flashdbm is on the disk of a directory, and how fast the
disk itself is, and sums that up in one line:

  bare disk   writes pages of 4 KiB one after the other to a file, and syncs
              after each: no store that keeps its promise commits faster alone
  durable     one record of 16 + 100 bytes in each transaction, synced, from one
              goroutine and from 64 at once
  buffered    100 records in each transaction, synced in the background
  lookups     of random keys, from one goroutine and from one for each processor

It takes about as long as --time says, 10 seconds by default, and up to 200 MB
in a new directory that it removes, also when it is interrupted. These are quick
figures of a quiet moment: the benchmark that compares stores is bench/ in the
repository.`

// benchCommand holds the flags of bench.
type benchCommand struct {
	time time.Duration
	json bool
}

func newBenchCommand(p *program) *cobra.Command {
	var flags benchCommand
	cmd := &cobra.Command{
		Use:     "bench [DIRECTORY]",
		Short:   "Measure the disk, and flashdbm on it, in ten seconds",
		Long:    benchHelp,
		Example: "  flashdbm bench /var/lib/app",
		Args:    takes(0, 1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return flags.run(p, cmd.Context(), append(args, ".")[0])
		}),
	}
	cmd.Flags().DurationVar(&flags.time, "time", 10*time.Second, "measure for `TIME` in all, 1s to 1m")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the figures as a JSON object, times in nanoseconds")
	return cmd
}

const (
	benchLeast = time.Second
	benchMost  = time.Minute
)

func (flags *benchCommand) run(p *program, ctx context.Context, dir string) (err error) {
	if flags.time < benchLeast || flags.time > benchMost {
		return usagef("--time must be from %v to %v", benchLeast, benchMost)
	}
	work, err := os.MkdirTemp(dir, "flashdbm-bench-")
	if err != nil {
		if _, serr := os.Stat(dir); errors.Is(serr, os.ErrNotExist) {
			return fmt.Errorf("there is no directory %s: make it first", dir)
		}
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &benchRun{
		ctx: ctx, raw: filepath.Join(work, "raw"), path: filepath.Join(work, "bench.fdbm"),
		step: flags.time / benchSteps,
	}
	line := p.startProgress("bench", func(n int64) string { return formatDuration(time.Duration(n)) }, int64(flags.time), false)
	b.ended = func(took time.Duration) { line.Add(int64(took)) }
	err = b.run()
	line.Stop()
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	b.result.Directory, b.result.Advice = dir, b.result.advise()
	if flags.json {
		return printJSON(p.stdout, b.result)
	}
	return b.result.print(p.stdout)
}
