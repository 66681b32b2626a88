package main

import (
	"errors"
	"fmt"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const checkHelp = `check reads every page that the database can reach and reports all that is
wrong with checksums, order, counts and the use of space, one problem on a line.
It changes nothing. The exit code is 3 if there is a problem.`

func newCheckCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "check DATABASE",
		Short:             "Read everything and report damage",
		Long:              checkHelp,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return runCheck(p, cmd, args[0], asJSON)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as a JSON object")
	return cmd
}

// checkResult is what check --json prints.
type checkResult struct {
	OK       bool     `json:"ok"`
	Records  int64    `json:"records"`
	Problems []string `json:"problems"`
}

func runCheck(p *program, cmd *cobra.Command, path string, asJSON bool) error {
	result := checkResult{Problems: []string{}}
	err := p.inspect(path, func(db *dbm.DB) (err error) {
		line := p.startProgress("check", formatCount, 0, false)
		defer line.Stop()
		if result.Records, err = db.Len(); err != nil {
			return err
		}
		return db.Check(cmd.Context())
	})
	switch {
	case err == nil:
		result.OK = true
	case damage(err):
		result.Problems = problems(err)
	default:
		return err
	}
	if asJSON {
		if err := printJSON(p.stdout, result); err != nil {
			return err
		}
	} else if result.OK {
		if _, err := fmt.Fprintf(p.stdout, "%s: no problems in %s\n", path, formatRecords(result.Records)); err != nil {
			return err
		}
	} else {
		for _, problem := range result.Problems {
			fmt.Fprintln(p.stderr, problem)
		}
	}
	if !result.OK {
		return fmt.Errorf("%s is damaged, problems found: %d; restore a backup", path, len(result.Problems))
	}
	return nil
}

// damage reports whether err speaks of the content of the file and not, for
// example, of a lock.
func damage(err error) bool {
	return errors.Is(err, dbm.ErrCorrupt)
}

// problems takes joined errors apart, one line each.
func problems(err error) []string {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{oneLine(err)}
	}
	var lines []string
	for _, one := range joined.Unwrap() {
		lines = append(lines, problems(one)...)
	}
	return lines
}
