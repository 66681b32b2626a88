package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	for _, test := range []struct {
		args string // separated by spaces; DB is the database
		says string
	}{
		{"frob", `no command "frob"`},
		{"help frob", `no command "frob"`},
		{"help get frob", `no command "get frob"`},
		{"completion", "no shell given"},
		{"completion frob", `no completion for "frob"`},
		{"get DB " + strings.Repeat("k", 64<<10+1), "longer than 64 KiB"},
		{"has DB " + strings.Repeat("k", 64<<10+1), "longer than 64 KiB"},
		{"del DB " + strings.Repeat("k", 64<<10+1), "longer than 64 KiB"},
		{"dump DB --file DB", "is the database itself"},
		{"get DB a --file DB", "is the database itself"},
		{"gett DB a", "did you mean get?"},
		{"get", `0 arguments do not fit "flashdbm get DATABASE KEY [flags]"`},
		{"get DB", "1 argument does not fit"},
		{"get DB a b", "3 arguments do not fit"},
		{"get DB a --nonsense", "unknown flag: --nonsense"},
		{"get DB zz --hex", "not hexadecimal"},
		{"get DB 0 --hex", "not hexadecimal"},
		{"get DB a --base64", "not base64"},
		{"get DB YR== --base64", "not base64"},
		{"get DB 61 --hex --base64", "[base64 hex]"},
		{"get DB a --json --file x", "[file json]"},
		{"put DB", "DATABASE KEY [VALUE]"},
		{"put DB a zz --hex", "not hexadecimal"},
		{"put DB a 1 --file x", "either as an argument or with --file"},
		{"del", "0 arguments do not fit"},
		{"del DB", "no key given"},
		{"del DB --prefix ", "every key: give --all"},
		{"del DB --from ", "every key: give --all"},
		{"del DB a --all", "either as arguments or by a flag"},
		{"del DB a --null", "either as arguments or by a flag"},
		{"del DB --all --prefix a", "[all prefix]"},
		{"del DB --null --to a", "[null to]"},
		{"del DB --hex --prefix zz", "key of --prefix"},
		{"del DB 61 zz --hex", "not hexadecimal"},
		{"list DB --limit -1", "must not be negative"},
		{"list DB --limit x", "invalid argument"},
		{"list DB --hex --from zz", "key of --from"},
		{"list DB --hex --to zz", "key of --to"},
		{"list DB --hex --prefix zz", "key of --prefix"},
		{"list DB --null --json", "[json null]"},
		{"stat DB --profile heat", "block cpu mem mutex trace"},
		{"stat DB --wait soon", "invalid argument"},
		{"stat DB --wait -1s", "must not be negative"},
		{"stat DB --watch=1ms", "too short"},
		{"stat DB --watch=soon", "invalid argument"},
		{"bench --time 1h", "must be from 1s to 1m"},
		{"bench a b", "do not fit"},
		{"demo --kills -1", "must not be negative"},
		{"demo here", "does not fit"},
		{"demo-writer DB x", "not a number"},
	} {
		args := strings.Split(test.args, " ")
		for i, arg := range args {
			if arg == "DB" {
				args[i] = db
			}
		}
		fail(t, exitUsage, []string{test.says, "--help"}, args...)
	}
	require.Equal(t, "a\n", succeed(t, "list", db), "nothing was changed")
}

func TestNoCommand(t *testing.T) {
	r := execute(t, "")
	require.Equal(t, exitUsage, r.code)
	require.Empty(t, r.stdout)
	require.Contains(t, r.stderr, "no command given")
	require.Contains(t, r.stderr, "Exit codes")
}

func TestHelp(t *testing.T) {
	root := succeed(t, "--help")
	require.NotContains(t, root, demoWriterName)
	for _, name := range []string{"get", "put", "del", "has", "list", "stat", "check", "compact", "dump", "load", "bench", "demo", "completion"} {
		require.Contains(t, root, "\n  "+name+" ")
		require.Contains(t, succeed(t, name, "--help"), "Usage:\n  flashdbm "+name)
		require.Equal(t, succeed(t, name, "--help"), succeed(t, "help", name))
	}
	require.True(t, strings.HasPrefix(succeed(t, "--version"), "flashdbm version "))
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	for _, key := range []string{"user/ann", "user/bob", "user/\x01", "vat"} {
		succeed(t, "put", db, key, "1")
	}
	complete := func(args ...string) []string {
		r := execute(t, "", append([]string{"__complete"}, args...)...)
		require.Equal(t, exitDone, r.code, r.stderr)
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		return lines[:len(lines)-1] // the last line is a directive
	}
	require.Equal(t, []string{"user/ann", "user/bob"}, complete("get", db, "us"))
	require.Empty(t, complete("get", db, "user/ann", ""))
	require.Equal(t, []string{"vat"}, complete("del", db, "user/ann", "v"))
	require.Empty(t, complete("get", filepath.Join(t.TempDir(), "missing"), ""))
	require.Equal(t, profileNames(), complete("get", "--profile", ""))
	for _, name := range []string{"get", "list", "put", "dump", "load", "del", "stat", "plot", "demo"} {
		require.NotContains(t, strings.Join(complete(name, "--"), "\n"), "`")
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, succeed(t, "completion", shell), "flashdbm")
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	for name, mode := range profileModes {
		dir := t.TempDir()
		cmd := command(t, "put", db, "a", "1", "--profile", name)
		cmd.Dir = dir
		require.Equal(t, exitDone, finish(t, cmd, nil).code)
		status, err := os.Stat(filepath.Join(dir, mode.file))
		require.NoError(t, err)
		require.Positive(t, status.Size(), name)

		// An error while writing a profile does not give the exit code for "not found".
		cmd = command(t, "get", db, "a", "--profile", name)
		cmd.Dir = dir
		require.NoError(t, os.Remove(filepath.Join(dir, mode.file)))
		require.NoError(t, os.Mkdir(filepath.Join(dir, mode.file), 0o700))
		r := finish(t, cmd, nil)
		require.Equal(t, exitError, r.code)
		require.Contains(t, r.stderr, mode.file)
	}
}

func TestLocked(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	// A load that waits for its input has opened the database, once it has read the header and a batch. The puts
	// below, which check this, may hold the lock themselves.
	holder := command(t, "load", db, "--wait", waitForProcess.String())
	input, err := holder.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	_, err = input.Write([]byte("VERSION=3\nformat=print\nHEADER=END\n b\n 2\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return execute(t, "", "put", db, "a", "2").code == exitError },
		waitForProcess, waitForProcess/1000)
	fail(t, exitError, []string{"stop the process", "--wait"}, "put", db, "a", "2")
	fail(t, exitError, []string{"--beside"}, "get", db, "a")
	require.NotEmpty(t, succeed(t, "get", db, "a", "--beside"))
	require.Contains(t, succeed(t, "stat", db, "--beside"), "segments, 1 a character:")
	succeed(t, "check", db, "--beside")
	fail(t, exitUsage, []string{"only read"}, "put", db, "a", "2", "--beside")
	fail(t, exitUsage, []string{"only read"}, "del", db, "a", "--beside")
	fail(t, exitUsage, []string{"only read"}, "compact", db, "--beside")
	fail(t, exitError, []string{"stop the process"}, "compact", db)

	waiter := command(t, "put", db, "a", "3", "--wait", waitForProcess.String())
	require.NoError(t, waiter.Start())
	_, err = input.Write([]byte("DATA=END\n"))
	require.NoError(t, err)
	require.NoError(t, input.Close())
	require.NoError(t, holder.Wait())
	require.NoError(t, waiter.Wait())
	require.Equal(t, "a\t3\nb\t2\n", succeed(t, "list", db, "--values"))
}

// When the reader of its output goes away, list ends without a message, like every other program in a pipeline.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	db := newPath(t)
	var dump strings.Builder
	dump.WriteString("VERSION=3\nformat=print\nHEADER=END\n")
	for i := range 20_000 {
		dump.WriteString(" " + strings.Repeat("k", 10) + formatCount(int64(i)) + "\n \n")
	}
	dump.WriteString("DATA=END\n")
	succeedWith(t, dump.String(), "load", db)
	list := command(t, "list", db)
	pipeline := exec.CommandContext(t.Context(), shell, "-c", `"$0" list "$1" | head -n 1`, list.Path, db)
	pipeline.Env = list.Env
	r := finish(t, pipeline, nil)
	require.Equal(t, result{exitDone, "kkkkkkkkkk0\n", ""}, r)
}
