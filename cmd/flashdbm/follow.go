package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

const followHelp = `follow keeps STANDBY a copy of DATABASE, which another program has open and writes.
The first time it copies all of the database; from then on it copies what has
changed, five times a second. When it is started again, also after a kill, it
continues where it stopped. The standby gets the commits in the order of the database, and
can be read with --beside meanwhile.

The file STANDBY.follow has what follow needs to continue. To promote the standby, end
follow and run "flashdbm follow --promote STANDBY", which removes that file: from
then on the standby is a database of its own. If the database is lost, so are the
commits since the last look, less than a second.`

type followCommand struct {
	every   time.Duration
	once    bool
	promote bool
}

func newFollowCommand(p *program) *cobra.Command {
	var follow followCommand
	cmd := &cobra.Command{
		Use:   "follow DATABASE STANDBY",
		Short: "Keep a warm standby up to date",
		Long:  followHelp,
		Example: `  flashdbm follow app.fdbm /mnt/other/app.fdbm
  flashdbm follow --promote /mnt/other/app.fdbm`,
		Args: cobra.ArbitraryArgs,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			want := 2
			if follow.promote {
				want = 1
			}
			switch {
			case len(args) != want:
				return usagef("give DATABASE and STANDBY, or --promote and STANDBY alone; %d were given", len(args))
			case follow.every < time.Millisecond:
				return usagef("--every must be 1ms or more")
			case follow.promote:
				return promote(p, args[0])
			}
			return follow.run(p, cmd.Context(), args[0], args[1])
		}),
	}
	cmd.Flags().DurationVar(&follow.every, "every", 200*time.Millisecond, "look for changes once in this `TIME`")
	cmd.Flags().BoolVar(&follow.once, "once", false, "bring the standby up to date and end")
	cmd.Flags().BoolVar(&follow.promote, "promote", false, "make the standby a database of its own")
	return cmd
}

// positionFile returns the name of the file with the token of a standby's state, or of an earlier state.
func positionFile(standby string) string { return standby + ".follow" }

func (follow *followCommand) run(p *program, ctx context.Context, path, standby string) error {
	source, err := p.open(path, &dbm.Options{ReadOnly: true, Beside: true})
	if err != nil {
		return explainMissing(path, err)
	}
	defer source.Close()
	if err := p.refuseDatabase(path, standby, false); err != nil {
		return err
	}
	token, err := startStandby(ctx, source, standby)
	if err != nil {
		return err
	}
	db, err := p.open(standby, &dbm.Options{})
	if err != nil {
		return err
	}
	apply := func(have dbm.Token, increment io.Reader) error {
		token, err := db.ApplyBackup(ctx, have, increment)
		if err != nil {
			return err
		}
		return writePosition(standby, token)
	}
	if follow.once {
		err = followToNow(ctx, source, token, apply)
	} else if err = source.Follow(ctx, token, follow.every, apply); ctx.Err() != nil {
		err = nil // a signal has asked follow to end
	}
	return errors.Join(err, db.Close())
}

// errUpToDate ends a follow that has reached the present.
var errUpToDate = errors.New("up to date")

// followToNow applies one increment.
func followToNow(ctx context.Context, source *dbm.DB, token dbm.Token, apply func(dbm.Token, io.Reader) error) error {
	return untilKept(ctx, func() error {
		r, w := io.Pipe()
		go func() {
			_, err := source.BackupSince(ctx, token, w)
			w.CloseWithError(err)
		}()
		err := apply(token, r)
		r.CloseWithError(errUpToDate)
		return err
	})
}

// untilKept calls fn again if the writer, which does not wait for readers, has reused pages that fn was reading.
// A later try may be fast enough.
func untilKept(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if !errors.Is(err, dbm.ErrSnapshotTooOld) || try == followTries || ctx.Err() != nil {
			return err
		}
	}
}

const followTries = 100

// startStandby returns the token of a standby. If there is no standby, it creates one under a temporary name,
// writes its token, and then renames it. So a standby always has a token, and a file without a token is no standby.
func startStandby(ctx context.Context, source *dbm.DB, standby string) (token dbm.Token, err error) {
	if _, err := os.Lstat(standby); err == nil {
		text, err := os.ReadFile(positionFile(standby))
		if errors.Is(err, fs.ErrNotExist) {
			return token, fmt.Errorf("%s exists and is no standby: it has no %s; give another name, or remove it to begin again", standby, positionFile(standby))
		}
		if err != nil {
			return token, err
		}
		if token, err = dbm.ParseToken(string(text)); err != nil {
			err = fmt.Errorf("%s is damaged: %.100q is no token; remove %s and that file to begin again", positionFile(standby), text, standby)
		}
		return token, err
	}
	begun := standby + ".begun"
	if err := os.Remove(begun); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a follow that was killed
		return token, err
	}
	if err := untilKept(ctx, func() error {
		r, w := io.Pipe()
		go func() {
			_, err := source.Backup(ctx, w)
			w.CloseWithError(err)
		}()
		token, err = dbm.Restore(ctx, begun, r)
		r.CloseWithError(errUpToDate)
		return err
	}); err != nil {
		return token, err
	}
	if err := writePosition(standby, token); err != nil {
		return token, err
	}
	return token, renameSynced(begun, standby)
}

// writePosition replaces the token of a standby, atomically. The standby must already have the state of the token.
func writePosition(standby string, token dbm.Token) error {
	temporary := positionFile(standby) + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, token)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return renameSynced(temporary, positionFile(standby))
}

// renameSynced renames a file, and syncs the directory where that is possible.
func renameSynced(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return nil
	}
	defer d.Close()
	_ = d.Sync() // some systems cannot sync a directory; a token that is older than the standby does no harm
	return nil
}

// promote removes the token of a standby, which no follow may be updating.
func promote(p *program, standby string) error {
	if _, err := os.Stat(positionFile(standby)); err != nil {
		return fmt.Errorf("%s is no standby: it has no %s", standby, positionFile(standby))
	}
	return p.change(standby, func(db *dbm.DB) error { return os.Remove(positionFile(standby)) })
}
