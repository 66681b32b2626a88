package main

import (
	"errors"
	"fmt"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const checkHelp = `check reads every page that the database can reach and reports all that is
wrong with checksums, order, counts and the use of space, one problem on a line:
the damaged page, the keys that it covers, and what is wrong. It goes on to the
end, and changes nothing. Keys that no line covers can be read. A file that is
too damaged to be opened is examined page by page, as salvage does.

The exit code is 3 if there is a problem. "flashdbm salvage" then copies all
that can still be read to a new database; docs/recovery.md says what to do.`

func newCheckCommand(p *program) *cobra.Command {
	var asJSON bool
	var form notation
	cmd := &cobra.Command{
		Use:               "check DATABASE",
		Short:             "Read everything and report damage",
		Long:              checkHelp,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return runCheck(p, cmd, args[0], asJSON, &form)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as a JSON object")
	form.addFlags(cmd)
	return cmd
}

// checkResult is the JSON object of check --json.
type checkResult struct {
	OK       bool             `json:"ok"`
	Records  int64            `json:"records"`
	Problems []string         `json:"problems"`
	Damage   []map[string]any `json:"damage"`
	More     int              `json:"more,omitempty"` // problems beyond the first maxListed
}

// maxListed is the most problems in the JSON object; the lines of text have all.
const maxListed = 100_000

func runCheck(p *program, cmd *cobra.Command, path string, asJSON bool, form *notation) error {
	result := checkResult{Problems: []string{}, Damage: []map[string]any{}}
	found := 0
	report := func(d dbm.Damage) {
		found++
		switch {
		case !asJSON:
			fmt.Fprintln(p.stderr, describe(form, d))
		case len(result.Damage) < maxListed:
			result.Problems = append(result.Problems, oneLine(d.Err))
			result.Damage = append(result.Damage, damageObject(form, d))
		default:
			result.More++
		}
	}
	err := p.inspect(path, func(db *dbm.DB) (err error) {
		line := p.startProgress("check", formatCount, 0, false)
		defer line.Stop()
		if err := db.CheckAll(cmd.Context(), report); err != nil {
			return err
		}
		err = db.ViewContext(cmd.Context(), func(tx *dbm.Tx) (err error) {
			result.Records, err = countAll(tx)
			return err
		})
		if found > 0 && damage(err) { // CheckAll has reported it, with its keys
			return nil
		}
		return err
	})
	if damage(err) { // the database could not be opened, or could not be read any further
		report(dbm.Damage{Scope: dbm.DamagedSpace, Err: err})
		s, serr := dbm.Examine(cmd.Context(), path, &dbm.SalvageOptions{LockTimeout: p.wait, Report: report})
		if serr != nil {
			return errors.Join(err, serr)
		}
		result.Records = s.Records
	} else if err != nil {
		return err
	}
	result.OK = found == 0
	if asJSON {
		if err := printJSON(p.stdout, result); err != nil {
			return err
		}
	} else if result.OK {
		if _, err := fmt.Fprintf(p.stdout, "%s: no problems in %s\n", path, formatRecords(result.Records)); err != nil {
			return err
		}
	}
	if !result.OK {
		return fmt.Errorf("%s is damaged, problems found: %d; restore a backup, or see \"flashdbm salvage --help\"", path, found)
	}
	return nil
}

// countAll returns how many records there are in all keyspaces.
func countAll(tx *dbm.Tx) (n int64, err error) {
	if n, err = tx.Len(); err != nil {
		return 0, err
	}
	for name := range tx.Keyspaces() {
		in, err := tx.Keyspace(name)
		if err != nil {
			return 0, err
		}
		some, err := in.Len()
		if err != nil {
			return 0, err
		}
		n += some
	}
	return n, tx.Err()
}

// describe says in one line what is damaged: the page, the keys, and what is wrong.
func describe(form *notation, d dbm.Damage) string {
	var parts []string
	if d.Page != 0 {
		parts = append(parts, fmt.Sprintf("page %d", d.Page))
	}
	if keys := coveredKeys(form, d); keys != "" {
		parts = append(parts, keys)
	}
	return strings.Join(append(parts, oneLine(d.Err)), ": ")
}

// coveredKeys names the keys that a damage covers; "" if it covers none.
func coveredKeys(form *notation, d dbm.Damage) string {
	switch {
	case d.Scope == dbm.DamagedRecord:
		return "key " + form.format(d.From)
	case d.Scope == dbm.OlderVersion:
		return "older version of key " + form.format(d.From)
	case d.Scope != dbm.DamagedKeys:
		return ""
	case len(d.From) == 0 && len(d.To) == 0:
		return "all keys"
	case len(d.From) == 0:
		return "keys below " + form.format(d.To)
	case len(d.To) == 0:
		return "keys from " + form.format(d.From) + " on"
	}
	return "keys from " + form.format(d.From) + " to below " + form.format(d.To)
}

// damageObject is the JSON object of a damage.
func damageObject(form *notation, d dbm.Damage) map[string]any {
	object := map[string]any{"error": oneLine(d.Err)}
	if d.Page != 0 {
		object["page"] = d.Page
	}
	switch d.Scope {
	case dbm.DamagedRecord, dbm.OlderVersion:
		form.addTo(object, "key", d.From)
		if d.Scope == dbm.OlderVersion {
			object["older"] = true
		}
	case dbm.DamagedKeys:
		form.addTo(object, "from", d.From)
		if len(d.To) > 0 {
			form.addTo(object, "to", d.To)
		}
	}
	return object
}

// damage reports whether err is about the content of the file and not, for example, about a lock.
func damage(err error) bool {
	return errors.Is(err, dbm.ErrCorrupt)
}
