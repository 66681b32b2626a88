package main

import (
	"errors"
	"fmt"
	"io/fs"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const salvageHelp = `salvage copies every record that can still be read of a damaged database to a new
one. It needs neither a superblock nor a whole tree or log: leaves that nothing
leads to any more are found by looking at all pages of the file.

The damaged file is only read. NEW must not exist; it appears when it is
complete, and nothing is left of it after an error. Missing records are reported
on standard error, one line each: the page, the keys that it held, and what is
wrong with it. Keys of a page that was lost may have come back from elsewhere.

Of records whose newest page is damaged, older versions may still be in the
file. They are left out; with --older they are copied as well, and each is reported.

The exit code is 0 if all could be copied, and 3 if anything is missing or was
copied in an older version, or the copy failed. docs/recovery.md says what to do
before and after.`

type salvageCommand struct {
	older bool
	json  bool
	form  notation
}

func newSalvageCommand(p *program) *cobra.Command {
	var salvage salvageCommand
	cmd := &cobra.Command{
		Use:     "salvage DAMAGED NEW",
		Short:   "Copy what can still be read of a damaged database",
		Long:    salvageHelp,
		Example: `  flashdbm salvage app.fdbm rescued.fdbm 2> missing.txt`,
		Args:    takes(2, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return salvage.run(p, cmd, args[0], args[1])
		}),
	}
	cmd.Flags().BoolVar(&salvage.older, "older", false, "copy also older versions of records whose newest page is damaged")
	cmd.Flags().BoolVar(&salvage.json, "json", false, "print the result as a JSON object")
	salvage.form.addFlags(cmd)
	return cmd
}

// salvageResult is the JSON object of salvage --json.
type salvageResult struct {
	Whole       bool             `json:"whole"` // nothing is missing
	Records     int64            `json:"records"`
	Bytes       int64            `json:"bytes"`
	Older       int64            `json:"older_versions"`
	DamagedTree int64            `json:"damaged_tree_pages"`
	LostRecords int64            `json:"lost_records"`
	LostGroups  uint64           `json:"lost_groups"`
	Dropped     bool             `json:"newest_group_dropped"`
	Superblocks int              `json:"superblocks"` // readable superblocks, of two
	Checkpoint  bool             `json:"checkpoint_found"`
	Missing     []map[string]any `json:"missing"`
	More        int              `json:"more,omitempty"` // entries of missing beyond the first maxListed
}

func (c *salvageCommand) run(p *program, cmd *cobra.Command, damaged, fresh string) error {
	if p.beside {
		return usagef("salvage reads no database that another process may be writing: leave out --beside, and stop that process first")
	}
	result := salvageResult{Missing: []map[string]any{}}
	told := 0
	report := func(d dbm.Damage) {
		told++
		switch {
		case !c.json:
			fmt.Fprintln(p.stderr, describe(&c.form, d))
		case len(result.Missing) < maxListed:
			result.Missing = append(result.Missing, damageObject(&c.form, d))
		default:
			result.More++
		}
	}
	ctx, stop := untilReadersGo(cmd.Context())
	defer stop()
	line := p.startProgress("salvage", formatBytes, 0, false)
	seen := int64(0)
	s, err := dbm.Salvage(ctx, damaged, fresh, &dbm.SalvageOptions{
		Older: c.older, LockTimeout: p.wait, Report: report,
		Progress: func(read, _ int64) {
			line.Add(read - seen)
			seen = read
		},
	})
	line.Stop()
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w; salvage overwrites nothing: give the name of a file that does not exist", err)
	case errors.Is(err, dbm.ErrLocked):
		return fmt.Errorf("%s is open in a process that may write: stop that first, or wait for it with --wait 30s", damaged)
	case err != nil:
		return explainMissing(damaged, err)
	}
	result.Whole = told == 0
	result.Records, result.Bytes, result.Older, result.DamagedTree = s.Records, s.Bytes, s.Older, s.DamagedTree
	result.LostRecords, result.LostGroups, result.Dropped, result.Checkpoint = s.LostRecords, s.LostGroups, s.Dropped, s.Checkpoint
	result.Superblocks = s.Superblocks
	if c.json {
		if err := printJSON(p.stdout, result); err != nil {
			return err
		}
	} else if err := c.print(p, fresh, &s); err != nil {
		return err
	}
	if !result.Whole {
		return fmt.Errorf("some of %s is missing or older in %s: see the lines above, or \"missing\" with --json", damaged, fresh)
	}
	return nil
}

// print describes the result in some lines.
func (c *salvageCommand) print(p *program, fresh string, s *dbm.Salvaged) error {
	lines := fmt.Sprintf("%s: %s, %s of keys and values\n", fresh, formatRecords(s.Records), formatBytes(s.Bytes))
	count := func(n int64, what string) {
		if n > 0 {
			lines += fmt.Sprintf("%s %s\n", formatCount(n), what)
		}
	}
	count(s.Older, "of them may be older versions")
	count(s.DamagedTree, "pages of the tree cannot be read; records of theirs that were found elsewhere are copied")
	count(s.LostRecords, "records are known by their key only: their values cannot be read")
	count(int64(s.LostGroups), "groups of the log are damaged or missing: commits in them are lost, where no leaf has what they wrote")
	if s.Dropped {
		lines += "the newest group of the log is not whole, as a crash leaves it, and was left out\n"
	}
	if !s.Checkpoint {
		lines += "no checkpoint can be read: which of several versions is the newest was inferred from the pages alone\n"
	}
	_, err := p.stdout.WriteString(lines)
	return err
}
