package main

import (
	"fmt"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const compactHelp = `compact makes the file of a database about as small as one into which its
records were loaded in order: it moves records together, and then gives the free
space back to the file system. No database needs that; use it when the space is
needed elsewhere, or before the file is copied.

It may be interrupted at any time, also by a kill: no record changes, and what
was done stays done. The sizes that it prints are what the file takes on disk, as
du shows it. No other program may have the database open; a program that has it
open can call DB.Compact itself.`

func newCompactCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "compact DATABASE",
		Short:             "Make the file small",
		Long:              compactHelp,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return runCompact(p, cmd, args[0], asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as a JSON object")
	return cmd
}

// compactResult is the JSON object of compact --json.
type compactResult struct {
	Before int64 `json:"bytes_before"`
	After  int64 `json:"bytes_after"`
	Live   int64 `json:"live_bytes"`
}

func runCompact(p *program, cmd *cobra.Command, path string, asJSON bool) error {
	var result compactResult
	err := p.change(path, func(db *dbm.DB) error {
		result.Before = db.Stats().FileBytes
		line := p.startProgress("compact", formatBytes, result.Before, false)
		defer line.Stop()
		told := int64(0)
		err := db.Compact(cmd.Context(), func(c dbm.Compaction) {
			done := int64(c.Done * float64(result.Before))
			line.Add(done - told)
			told = done
		})
		s := db.Stats()
		result.After, result.Live = s.FileBytes, s.LiveBytes
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(p.stdout, result)
	}
	_, err = fmt.Fprintf(p.stdout, "%s: %s before, %s now, of which %s are in use\n", path, formatBytes(result.Before), formatBytes(result.After), formatBytes(result.Live))
	return err
}
