package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// Exit codes. Scripts rely on them.
const (
	exitDone     = 0 // done, or found
	exitNotFound = 1 // the key is not there
	exitUsage    = 2 // the command line is wrong
	exitError    = 3 // anything else
)

// usageError is a mistake in the command line that a command itself has found.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// notFoundError says that a key is absent. With an empty message, the exit code is the only answer.
type notFoundError struct{ message string }

func (e *notFoundError) Error() string { return e.message }

// incompleteError is an error after which a file for output has only a part of it.
type incompleteError struct {
	file  string
	cause error
}

func (e *incompleteError) Error() string { return fmt.Sprintf("%v; %s is incomplete", e.cause, e.file) }

func (e *incompleteError) Unwrap() error { return e.cause }

// finish prints the error of cmd, if any, in one line on standard error, and
// returns the exit code.
func (p *program) finish(cmd *cobra.Command, err error) int {
	name := cmd.Root().Name()
	var usage *usageError
	// A type assertion and not errors.As: if "not found" is joined with another error, for example
	// of Close, the result is that error.
	absent, isAbsent := err.(*notFoundError)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.Is(err, dbm.ErrKeyTooLarge), !p.running:
		fmt.Fprintf(p.stderr, "%s: %s; see \"%s --help\"\n", name, oneLine(err), cmd.CommandPath())
		return exitUsage
	case isAbsent:
		if absent.message != "" {
			fmt.Fprintf(p.stderr, "%s: %s\n", name, oneLine(err))
		}
		return exitNotFound
	case errors.Is(err, context.Canceled):
		message := "interrupted"
		var incomplete *incompleteError
		if errors.As(err, &incomplete) {
			message += "; " + incomplete.file + " is incomplete"
		}
		fmt.Fprintf(p.stderr, "%s: %s\n", name, message)
		return exitError
	default:
		message := oneLine(err)
		if next := advice(err); next != "" {
			message += "; " + next
		}
		fmt.Fprintf(p.stderr, "%s: %s\n", name, message)
		return exitError
	}
}

// oneLine returns the text of err without the line ends of joined errors, and without the package's name, which is
// also the program's.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return strings.TrimPrefix(text, "flashdbm: ")
}

// advice says what the user can do about err; "" if the error says enough.
func advice(err error) string {
	switch {
	case errors.Is(err, dbm.ErrLocked):
		return "stop the process that has it open, wait for it with --wait 30s, or, to read, do so beside it with --beside"
	case errors.Is(err, dbm.ErrFormat):
		return "check that this is a flashdbm database, and that this flashdbm is not older than the one that wrote it"
	case errors.Is(err, dbm.ErrCorrupt):
		return "the file is damaged: \"flashdbm check\" says where; restore a backup, or see \"flashdbm salvage --help\""
	case errors.Is(err, dbm.ErrFull):
		return "make room on that file system and try again"
	case errors.Is(err, dbm.ErrNoKeyspace):
		return "\"flashdbm keyspaces\" prints and makes them"
	case errors.Is(err, dbm.ErrConflict):
		return "other writers kept changing the same keys: try again"
	case errors.Is(err, dbm.ErrSnapshotTooOld):
		return "the database changed too much meanwhile: try again"
	case errors.Is(err, dbm.ErrFailed):
		return "look for disk errors in the system log; all that was reported as done is kept"
	case errors.Is(err, fs.ErrPermission):
		return "check the permissions of the file and its directory"
	}
	return ""
}
