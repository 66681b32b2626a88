package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const demoHelp = `demo does the main job of the database on real input and proves the result:

  store      every file of the Go distribution under its path, 100 to a
             durable transaction; then each value is compared with its file by
             SHA-256, and one directory is counted by prefix
  transfer   8 writers move money between the same accounts, beside readers
             whose snapshots must stay still and whose sums must balance
  kill       a child process is killed in the middle of durable commits, ten
             times; each time everything acknowledged must be there
  verify     all of it once more, and a check of every page

It ends with a table of what that took. A wrong result ends it
with exit code 3 and says what differed. It takes less than 3 minutes and 2 GB of
disk, in a new directory that it removes.`

// demoCommand holds the flags of demo.
type demoCommand struct {
	dir       string
	source    string
	kills     int
	transfers int
	keep      bool
	json      bool
}

func newDemoCommand(p *program) *cobra.Command {
	var flags demoCommand
	cmd := &cobra.Command{
		Use:               "demo",
		Short:             "Store, contend, kill and verify on real input",
		Long:              demoHelp,
		Args:              takes(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              p.command(func(cmd *cobra.Command, _ []string) error { return flags.run(p, cmd.Context()) }),
	}
	cmd.Flags().StringVar(&flags.dir, "dir", ".", "make the working directory in `DIR`")
	cmd.Flags().StringVar(&flags.source, "source", "", "store the files of `DIR` instead of \"go env GOROOT\"")
	cmd.Flags().IntVar(&flags.kills, "kills", 10, "kill a child process `N` times")
	cmd.Flags().IntVar(&flags.transfers, "transfers", 250, "make `N` transfers with each of the 8 writers")
	cmd.Flags().BoolVar(&flags.keep, "keep", false, "keep the database and say where it is")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the table as a JSON array and nothing else")
	return cmd
}

func (flags *demoCommand) run(p *program, ctx context.Context) (err error) {
	if flags.kills < 0 || flags.transfers < 0 {
		return usagef("--kills and --transfers must not be negative")
	}
	source, err := demoSource(ctx, flags.source)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(flags.dir, "flashdbm-demo-")
	if err != nil {
		return err
	}
	d := &demo{
		program: p, source: source,
		path: filepath.Join(dir, "demo.fdbm"), out: p.stdout,
		kills: flags.kills, transfers: flags.transfers,
	}
	if flags.json {
		d.out = io.Discard
	}
	ctx, stop := untilReadersGo(ctx)
	defer stop()
	defer func() {
		if flags.keep {
			fmt.Fprintf(p.stderr, "the database is kept: %s\n", d.path)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	if err := d.run(ctx); err != nil {
		if !flags.keep {
			err = fmt.Errorf("%w; to look into the database afterwards, run the demo with --keep", err)
		}
		return fmt.Errorf("demo: %w", err)
	}
	if flags.json {
		return printJSON(p.stdout, d.rows)
	}
	return printDemoTable(p.stdout, d.rows)
}

// demo is one run of the demonstration. Its phases work on one database file,
// each on a handle of its own, and each adds a row to the table.
type demo struct {
	program *program
	source  string    // directory whose files are stored
	path    string    // of the database
	out     io.Writer // one line for each thing shown

	kills     int
	transfers int

	rows []demoRow
}

func (d *demo) run(ctx context.Context) error {
	files, err := d.store(ctx)
	if err != nil {
		return err
	}
	if err := d.verify(ctx, "verify", files); err != nil {
		return err
	}
	if err := d.transfer(ctx); err != nil {
		return err
	}
	if err := d.kill(ctx); err != nil {
		return err
	}
	return d.verify(ctx, "verify again", files)
}

// phase opens the database, runs fn, closes the database and adds a row with
// the time that fn took and what the handle's counters say. fn sets the row's
// records and bytes.
func (d *demo) phase(name string, fn func(db *dbm.DB, row *demoRow) error) (err error) {
	row := demoRow{Phase: name}
	db, err := d.open(&row)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	before := db.Stats()
	started := time.Now()
	if err := fn(db, &row); err != nil {
		return err
	}
	row.Time = time.Since(started)
	row.count(before, db.Stats())
	d.rows = append(d.rows, row)
	return nil
}

// open opens the database and keeps the longest time that took for row.
func (d *demo) open(row *demoRow) (*dbm.DB, error) {
	started := time.Now()
	db, err := d.program.open(d.path, &dbm.Options{Events: func(dbm.Event) {}})
	row.OpenTime = max(row.OpenTime, time.Since(started))
	return db, err
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, format+"\n", args...)
}
