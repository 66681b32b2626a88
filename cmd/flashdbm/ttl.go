package main

import (
	"errors"
	"fmt"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const ttlHelp = `ttl prints how long it is until KEY expires, as 1h2m3.456s, or "forever" if it does
not expire. The exit code is 1 if the key does not exist.

"flashdbm put --ttl" stores records that expire. --json prints an object with the
time that is left in seconds, or without one if the record does not expire.`

type ttlCommand struct {
	notation
	spaceFlag
	json bool
}

func newTTLCommand(p *program) *cobra.Command {
	var ttl ttlCommand
	cmd := &cobra.Command{
		Use:               "ttl DATABASE KEY",
		Short:             "Print how long until a key expires",
		Long:              ttlHelp,
		Example:           `  flashdbm ttl app.fdbm session/17`,
		Args:              takes(2, 2),
		ValidArgsFunction: p.completeKey(&ttl.notation, 1),
		RunE:              p.command(func(cmd *cobra.Command, args []string) error { return ttl.run(p, cmd, args[0], args[1]) }),
	}
	ttl.notation.addFlags(cmd)
	ttl.spaceFlag.addFlags(cmd)
	cmd.Flags().BoolVar(&ttl.json, "json", false, "print the answer as a JSON object")
	return cmd
}

func (ttl *ttlCommand) run(p *program, cmd *cobra.Command, path, arg string) error {
	key, err := ttl.parse("key", arg)
	if err != nil {
		return err
	}
	var left time.Duration
	var expires bool
	err = p.read(cmd.Context(), path, ttl.within(func(tx *dbm.Tx) (err error) {
		left, expires, err = tx.TTL(key)
		return err
	}))
	if errors.Is(err, dbm.ErrNotFound) {
		return &notFoundError{fmt.Sprintf("there is no key %s in %s", ttl.format(key), path)}
	}
	if err != nil {
		return err
	}
	if ttl.json {
		answer := map[string]any{"expires": expires}
		if expires {
			answer["seconds"] = left.Seconds()
		}
		return printJSON(p.stdout, answer)
	}
	if !expires {
		_, err = fmt.Fprintln(p.stdout, "forever")
		return err
	}
	_, err = fmt.Fprintln(p.stdout, left)
	return err
}

// expiry returns when a record expires, from the result of Tx.TTL or Cursor.TTL in the function of read; the zero time
// if it does not expire.
func (p *program) expiry(left time.Duration, expires bool, err error) (time.Time, error) {
	if err != nil || !expires {
		return time.Time{}, err
	}
	return p.began.Add(left), nil
}
