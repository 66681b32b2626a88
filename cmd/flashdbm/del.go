package main

import (
	"fmt"
	"math"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const delHelp = `del deletes each KEY, all in one transaction. The exit code is 1 if one of them
was not there; the others are deleted all the same.`

type delCommand struct {
	notation
}

func newDelCommand(p *program) *cobra.Command {
	var del delCommand
	cmd := &cobra.Command{
		Use:   "del DATABASE KEY...",
		Short: "Delete keys",
		Long:  delHelp,
		Example: `  flashdbm del app.fdbm greeting
  flashdbm list app.fdbm --prefix cache/ --null | xargs -0 flashdbm del app.fdbm --`,
		Args:              takes(2, math.MaxInt),
		ValidArgsFunction: p.completeKey(&del.notation, completionLimit),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return del.run(p, cmd, args[0], args[1:]) }),
	}
	del.addFlags(cmd)
	return cmd
}

func (del *delCommand) run(p *program, cmd *cobra.Command, path string, args []string) error {
	keys := make([][]byte, len(args))
	for i, arg := range args {
		var err error
		if keys[i], err = del.parse("key", arg); err != nil {
			return err
		}
	}
	var missing []string
	err := p.change(path, func(db *dbm.DB) error {
		return db.UpdateContext(cmd.Context(), dbm.TxOptions{}, func(tx *dbm.Tx) (err error) {
			missing, err = del.delete(tx, keys)
			return err
		})
	})
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &notFoundError{fmt.Sprintf("there is no key %s in %s", strings.Join(missing, ", "), path)}
	}
	return nil
}

// delete deletes keys and returns those that were not there, as they are shown.
func (del *delCommand) delete(tx *dbm.Tx, keys [][]byte) (missing []string, err error) {
	for _, key := range keys {
		found, err := tx.Has(key)
		if err != nil {
			return nil, err
		}
		if !found {
			missing = append(missing, del.format(key))
			continue
		}
		if err := tx.Delete(key); err != nil {
			return nil, err
		}
	}
	return missing, nil
}
