package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"flashdbm/dbm"
	"flashdbm/logstore/vfs"

	"github.com/spf13/cobra"
)

const backupHelp = `backup writes a backup: all records as of one moment, in a compact database file
with a checksum of all of it at the end. It goes to a new file, or to standard
output for a pipe. "flashdbm restore" verifies it and makes a database of it.

Each backup has a token, which is printed: on standard error if the backup goes to
standard output. With --since TOKEN only what has changed since then is written, for
"flashdbm restore --increment". A token never expires.

With --beside another process may have the database open, and write, meanwhile.
If that process overwrites a lot in the time that the backup takes, the backup
ends with an error: then the process itself should call DB.Backup, which keeps
what it reads.`

type backupCommand struct {
	file  string
	rate  string
	since string
	json  bool
}

func newBackupCommand(p *program) *cobra.Command {
	var backup backupCommand
	cmd := &cobra.Command{
		Use:   "backup DATABASE",
		Short: "Write a verified copy as of one moment, also to a pipe",
		Long:  backupHelp,
		Example: `  flashdbm backup app.fdbm --file app.backup
  flashdbm backup app.fdbm --beside --rate 20MiB --file app.backup
  flashdbm backup app.fdbm --since TOKEN --file app.increment
  flashdbm backup app.fdbm | zstd | ssh host 'cat > app.backup.zst'`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeDatabase,
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			return backup.run(p, cmd, args[0])
		}),
	}
	cmd.Flags().StringVar(&backup.file, "file", "", "write to the new `FILE` instead of standard output")
	cmd.Flags().StringVar(&backup.since, "since", "", "write only what has changed since the backup with this `TOKEN`")
	cmd.Flags().StringVar(&backup.rate, "rate", "", "write no more than `BYTES` a second, for example 20MiB")
	cmd.Flags().BoolVar(&backup.json, "json", false, "print the number of bytes and the token as a JSON object; needs --file")
	return cmd
}

// backupResult is the JSON object of backup --json.
type backupResult struct {
	Bytes int64  `json:"bytes"`
	Token string `json:"token"`
}

func (backup *backupCommand) run(p *program, cmd *cobra.Command, path string) (err error) {
	toStdout := backup.file == "" || backup.file == standardStream
	rate := int64(0)
	if backup.rate != "" {
		if rate, err = parseBytes(backup.rate); err != nil || rate == 0 {
			return usagef("--rate wants a number of bytes, for example 20MiB, not %q", backup.rate)
		}
	}
	switch {
	case toStdout && backup.json:
		return usagef("--json prints to standard output, where the backup goes: give --file")
	case toStdout && isTerminal(p.stdout):
		return usagef("a backup is not for a terminal: give --file, or a pipe")
	}
	if err := p.refuseDatabase(path, backup.file, toStdout); err != nil {
		return err
	}
	out := &pacedWriter{ctx: cmd.Context(), w: p.stdout, rate: rate, program: p}
	defer func() { out.line.Stop() }()
	take := func(db *dbm.DB) (token dbm.Token, err error) { return db.Backup(cmd.Context(), out) }
	if cmd.Flags().Changed("since") {
		since, err := dbm.ParseToken(backup.since)
		if err != nil {
			return usagef("--since: %v", err)
		}
		take = func(db *dbm.DB) (dbm.Token, error) {
			out.Expect(0)
			return db.BackupSince(cmd.Context(), since, out)
		}
	}
	var token dbm.Token
	err = p.inspect(path, func(db *dbm.DB) (err error) {
		if toStdout {
			token, err = take(db)
			return err
		}
		return newFile(backup.file, func(f *os.File) (err error) {
			out.w = vfs.InSteps(f)
			token, err = take(db)
			return err
		})
	})
	switch {
	case err != nil:
		return err
	case toStdout:
		_, err = fmt.Fprintf(p.stderr, "token %s\n", token)
	case backup.json:
		err = printJSON(p.stdout, backupResult{out.written, token.String()})
	default:
		_, err = fmt.Fprintf(p.stdout, "%s: a backup of %s, token %s\n", backup.file, formatBytes(out.written), token)
	}
	return err
}

// newFile creates a file, which must not exist, calls fn to write it, and syncs it. After an error it removes the
// file.
func newFile(name string, fn func(f *os.File) error) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = fn(f); err == nil {
		err = syncFile(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// pacedWriter counts the bytes written. If rate is not 0, it waits so that it does not write more than rate bytes a
// second.
type pacedWriter struct {
	ctx     context.Context
	w       io.Writer
	rate    int64
	began   time.Time
	written int64
	program *program
	line    *progress
}

// Expect is called with the length of the backup before the first Write.
func (w *pacedWriter) Expect(bytes int64) {
	w.line = w.program.startProgress("backup", formatBytes, bytes, false)
	w.began = time.Now()
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.written += int64(n)
	w.line.Add(int64(n))
	if err != nil || w.rate == 0 {
		return n, err
	}
	due := w.began.Add(time.Duration(float64(w.written) / float64(w.rate) * float64(time.Second)))
	if wait := time.Until(due); wait > 0 {
		select {
		case <-time.After(wait):
		case <-w.ctx.Done():
			return n, w.ctx.Err()
		}
	}
	return n, nil
}
