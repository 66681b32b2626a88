package main

import (
	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const hasHelp = `has reports by its exit code whether KEY exists: 0 if it does, 1 if it does not. It
prints nothing, except for an object {"found": true} or {"found": false} with --json.`

type hasCommand struct {
	notation
	spaceFlag
	json bool
}

func newHasCommand(p *program) *cobra.Command {
	var has hasCommand
	cmd := &cobra.Command{
		Use:               "has DATABASE KEY",
		Short:             "Report by the exit code whether a key exists",
		Long:              hasHelp,
		Example:           `  flashdbm has app.fdbm greeting && echo yes`,
		Args:              takes(2, 2),
		ValidArgsFunction: p.completeKey(&has.notation, 1),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return has.run(p, cmd, args[0], args[1]) }),
	}
	has.notation.addFlags(cmd)
	has.spaceFlag.addFlags(cmd)
	cmd.Flags().BoolVar(&has.json, "json", false, "print the answer as a JSON object")
	return cmd
}

func (has *hasCommand) run(p *program, cmd *cobra.Command, path, arg string) error {
	key, err := has.parse("key", arg)
	if err != nil {
		return err
	}
	var found bool
	err = p.read(cmd.Context(), path, has.within(func(tx *dbm.Tx) (err error) {
		found, err = tx.Has(key)
		return err
	}))
	if err != nil {
		return err
	}
	if has.json {
		if err := printJSON(p.stdout, map[string]bool{"found": found}); err != nil {
			return err
		}
	}
	if !found {
		return &notFoundError{}
	}
	return nil
}
