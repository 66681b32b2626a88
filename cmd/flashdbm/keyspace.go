package main

import (
	"bufio"
	"errors"
	"fmt"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// spaceFlag is --keyspace of the commands that read or write records.
type spaceFlag struct{ name string }

func (s *spaceFlag) addFlags(cmd *cobra.Command) {
	cmd.Flags().Var((*spaceName)(&s.name), "keyspace", "the records of the keyspace `NAME` instead of the default one")
}

// spaceName is the value of --keyspace. An empty value, for example of a variable that a script has not set, is an
// error: it does not mean the default keyspace.
type spaceName string

func (n *spaceName) String() string { return string(*n) }
func (n *spaceName) Type() string   { return "string" }

func (n *spaceName) Set(name string) error {
	if name == "" {
		return errors.New("the name of a keyspace is not empty; without the flag it is the default keyspace")
	}
	*n = spaceName(name)
	return nil
}

// of returns the transaction as one of the requested keyspace.
func (s *spaceFlag) of(tx *dbm.Tx) (*dbm.Tx, error) {
	if s.name == "" {
		return tx, nil
	}
	return tx.Keyspace(s.name)
}

// within wraps fn so that it gets the transaction as one of the requested keyspace.
func (s *spaceFlag) within(fn func(tx *dbm.Tx) error) func(tx *dbm.Tx) error {
	return func(tx *dbm.Tx) error {
		in, err := s.of(tx)
		if err != nil {
			return err
		}
		return fn(in)
	}
}

const keyspacesHelp = `keyspaces prints the names of the keyspaces of a database, each followed by a tab
and the number of its records. The default keyspace, that of the commands without
--keyspace, has no name and is not among them.

With --create, --rename or --drop it makes a keyspace, gives it another name, or
removes it with all its records. Versions of flashdbm that do not know keyspaces
refuse a database that has had one. The records of a dropped keyspace are deleted
before the command ends, or, if it is interrupted, by programs that write to the
database later.`

type keyspacesCommand struct {
	create, rename, to, drop string
	json                     bool
}

func newKeyspacesCommand(p *program) *cobra.Command {
	var k keyspacesCommand
	cmd := &cobra.Command{
		Use:   "keyspaces DATABASE",
		Short: "Print, make, rename and remove keyspaces",
		Long:  keyspacesHelp,
		Example: `  flashdbm keyspaces app.fdbm --create sessions
  flashdbm put app.fdbm --keyspace sessions ann online
  flashdbm keyspaces app.fdbm --rename sessions --to old-sessions
  flashdbm keyspaces app.fdbm --drop old-sessions`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return k.run(p, cmd, args[0]) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&k.create, "create", "", "make the keyspace `NAME`")
	flags.StringVar(&k.rename, "rename", "", "give the keyspace `NAME` another name, that of --to")
	flags.StringVar(&k.to, "to", "", "the new `NAME`")
	flags.StringVar(&k.drop, "drop", "", "remove the keyspace `NAME` with all its records")
	flags.BoolVar(&k.json, "json", false, "print a JSON object for each keyspace")
	cmd.MarkFlagsMutuallyExclusive("create", "rename", "drop", "json")
	cmd.MarkFlagsRequiredTogether("rename", "to")
	return cmd
}

func (k *keyspacesCommand) run(p *program, cmd *cobra.Command, path string) error {
	flags := cmd.Flags()
	var do func(db *dbm.DB) error
	switch {
	case flags.Changed("create"):
		return p.withDatabase(path, dbm.Options{}, func(db *dbm.DB) error { return db.CreateKeyspace(k.create) })
	case flags.Changed("rename"):
		do = func(db *dbm.DB) error { return db.RenameKeyspace(k.rename, k.to) }
	case flags.Changed("drop"):
		do = func(db *dbm.DB) error {
			if err := db.DropKeyspace(k.drop); err != nil {
				return err
			}
			return db.FinishDrops(cmd.Context())
		}
	default:
		return k.list(p, cmd, path)
	}
	return p.change(path, do)
}

func (k *keyspacesCommand) list(p *program, cmd *cobra.Command, path string) error {
	return p.read(cmd.Context(), path, func(tx *dbm.Tx) error {
		var text notation
		return p.withOutput(path, "", func(w *bufio.Writer) error {
			for name := range tx.Keyspaces() {
				in, err := tx.Keyspace(name)
				if err != nil {
					return err
				}
				n, err := in.Len()
				if err != nil {
					return err
				}
				if k.json {
					record := map[string]any{"records": n}
					text.addTo(record, "name", []byte(name))
					err = printJSON(w, record)
				} else {
					_, err = fmt.Fprintf(w, "%s\t%d\n", text.format([]byte(name)), n)
				}
				if err := errors.Join(err, cmd.Context().Err()); err != nil {
					return err
				}
			}
			return tx.Err()
		})
	})
}
