package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutputIsTheDatabase: a command does not overwrite the database with its own output, whatever name the output
// has.
func TestOutputIsTheDatabase(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	before := readFile(t, db)
	symbolic, hard := filepath.Join(t.TempDir(), "symbolic"), db+".hard"
	require.NoError(t, os.Symlink(db, symbolic))
	require.NoError(t, os.Link(db, hard))
	for _, name := range []string{db, symbolic, hard} {
		for _, args := range [][]string{{"dump", db}, {"get", db, "a"}} {
			fail(t, exitUsage, []string{"the database itself"}, append(args, "--file", name)...)
		}
	}
	for _, args := range [][]string{{"dump", db}, {"get", db, "a"}, {"list", symbolic}} {
		cmd := command(t, args...)
		out, err := os.OpenFile(db, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		cmd.Stdout = out
		require.Error(t, cmd.Run())
		require.Equal(t, exitUsage, cmd.ProcessState.ExitCode(), "%q", args)
		require.NoError(t, out.Close())
	}
	require.True(t, before == readFile(t, db))
	require.NoError(t, os.Remove(hard))
}

// TestMissingPlace: the message names what is missing, which is the directory or the target of a link.
func TestMissingPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fail(t, exitError, []string{"no directory " + filepath.Join(dir, "no")}, "put", filepath.Join(dir, "no", "x"), "a", "1")
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("nothing", link))
	fail(t, exitError, []string{"symbolic link to nothing"}, "put", link, "a", "1")
	fail(t, exitError, []string{"symbolic link to nothing"}, "get", link, "a")
}

// TestNotFoundWithAnotherError: an absent key together with another error gives the exit code of the other error.
func TestNotFoundWithAnotherError(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	p := &program{stderr: null, running: true}
	root := newRootCommand(p)
	absent := &notFoundError{"no key"}
	require.Equal(t, exitNotFound, p.finish(root, absent))
	require.Equal(t, exitError, p.finish(root, errors.Join(absent, os.ErrClosed)))
}
