package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"flashdbm/dbm"

	"github.com/stretchr/testify/require"
)

// printing has command lines that print to standard output, in all their forms. DB is a database with a record a.
var printing = []string{
	"get DB a", "get DB a --json", "get DB 61 --hex", "get DB a --file -", "list DB", "list DB --values", "list DB --null", "list DB --json",
	"dump DB", "dump DB --print", "stat DB", "stat DB --json", "check DB", "check DB --json", "inspect DB", "inspect DB log --json", "compact DB", "compact DB --json",
	"has DB a --json", "has DB b --json", "load DB --json --file DUMP", "del DB --prefix nothing --json",
	"--help", "help", "help get", "get --help", "--version", "completion bash", "completion zsh", "completion fish", "completion powershell",
	"__complete get DB ",
}

func printingCommands(t *testing.T, db string) (all [][]string) {
	succeed(t, "put", db, "a", "1")
	dump := writeFile(t, printHeader+" a\n 1\nDATA=END\n")
	for _, line := range printing {
		args := strings.Split(line, " ")
		for i, arg := range args {
			switch arg {
			case "DB":
				args[i] = db
			case "DUMP":
				args[i] = dump
			}
		}
		all = append(all, args)
	}
	return all
}

// TestUnwritableOutput: it is an error if output cannot be written, for every command.
func TestUnwritableOutput(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	for _, args := range printingCommands(t, newPath(t)) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := command(t, args...)
		cmd.Stdout = full
		var said strings.Builder
		cmd.Stderr = &said
		err = cmd.Run()
		require.NoError(t, full.Close())
		require.Error(t, err, "%q", args)
		require.Equal(t, exitError, cmd.ProcessState.ExitCode(), "%q: %s", args, said.String())
		require.Contains(t, said.String(), "no space left", "%q", args)
	}
}

// inShell runs a script with the command as $0.
func inShell(t *testing.T, script string, args ...string) result {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	self := command(t)
	cmd := exec.CommandContext(t.Context(), shell, append([]string{"-c", script, self.Path}, args...)...)
	cmd.Env = self.Env
	return finish(t, cmd, strings.NewReader("input"))
}

// TestClosedOutput: a closed standard output is an error too.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	commands := printingCommands(t, db)
	if !wasClosedIsKnown {
		t.Skip("built without cgo, the command cannot tell a closed standard output from /dev/null")
	}
	for _, args := range commands {
		r := inShell(t, `"$0" "$@" >&-`, args...)
		require.Equal(t, exitError, r.code, "%q: %s", args, r.stderr)
		require.Contains(t, r.stderr, "stdout", "%q", args)
	}
	// A command that prints nothing does not need standard output, and a message that cannot be printed does not
	// change the exit code.
	require.Equal(t, result{code: exitDone}, inShell(t, `"$0" put "$1" b 2 >&-`, db))
	require.Equal(t, result{code: exitNotFound}, inShell(t, `"$0" has "$1" c >&- 2>&-`, db))
	require.Equal(t, result{code: exitNotFound}, inShell(t, `"$0" get "$1" c 2>&-`, db))
	require.Equal(t, result{exitDone, "1", ""}, inShell(t, `"$0" get "$1" a 2>&- <&-`, db))
	// Nothing is stored if standard input is closed.
	for _, line := range []string{`"$0" put "$1" c <&-`, `"$0" load "$1" <&-`, `"$0" del "$1" --null <&-`} {
		r := inShell(t, line, db)
		require.Equal(t, exitError, r.code, line)
		require.Contains(t, r.stderr, "stdin", line)
	}
	require.Equal(t, "a\nb\n", succeed(t, "list", db))
	// Writing to /dev/null is not an error, however it was opened.
	require.Equal(t, result{code: exitDone}, inShell(t, `"$0" get "$1" a >/dev/null && "$0" check "$1" 1<>/dev/null`, db))
}

// TestBrokenPipe: if the reader of a pipe has gone, the command is ended by SIGPIPE as other commands are.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeedWith(t, strings.Repeat("v", 1<<20), "put", db, "a")
	for _, args := range [][]string{{"get", db, "a"}, {"get", db, "a", "--json"}, {"dump", db}, {"list", db, "--values"}} {
		r := inShell(t, `("$0" "$@"; echo $? >&2) | true`, args...)
		require.Equal(t, "141\n", r.stderr, "%q", args)
	}
}

// TestIgnoredInterrupt: a signal that was ignored when the command was started does not end it.
func TestIgnoredInterrupt(t *testing.T) {
	t.Parallel()
	for _, ignored := range []string{"INT", "HUP", "INT HUP"} {
		db := filepath.Join(t.TempDir(), "db")
		first, _, _ := strings.Cut(ignored, " ")
		r := inShell(t, `trap "" `+ignored+`
			mkfifo "$1.in" || exit 9
			"$0" put "$1" a < "$1.in" & pid=$!
			exec 3> "$1.in"; sleep 1; kill -`+first+` $pid; sleep 1; echo whole >&3; exec 3>&-
			wait $pid`, db)
		require.Equal(t, result{code: exitDone}, r)
		require.Equal(t, "whole\n", succeed(t, "get", db, "a"))
	}
}

// TestTerminalClosed: when its terminal is closed, a command stops as if it were interrupted, and leaves nothing
// incomplete behind.
func TestTerminalClosed(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "b")
	to := filepath.Join(t.TempDir(), "backup")
	cmd := command(t, "backup", db, "--rate", "1KiB", "--file", to)
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(to); return err == nil }, waitForProcess, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.Error(t, cmd.Wait())
	require.Equal(t, "flashdbm: interrupted\n", said.String())
	require.Equal(t, exitError, cmd.ProcessState.ExitCode())
	require.NoFileExists(t, to)
}

// TestReadersGone: a command that prints while it works, and whose output nobody reads any more, leaves nothing
// incomplete behind.
func TestReadersGone(t *testing.T) {
	t.Parallel()
	db, dir := newPath(t), t.TempDir()
	succeed(t, "put", db, "a", "b")
	file, err := os.ReadFile(db)
	require.NoError(t, err)
	clear(file[:4096]) // a superblock
	require.NoError(t, os.WriteFile(db, file, 0o600))
	for _, args := range [][]string{
		{"salvage", db, filepath.Join(dir, "fresh")},
		{"demo", "--dir", dir, "--source", smallSource(t), "--kills", "0", "--transfers", "1"},
	} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		cmd := command(t, args...)
		cmd.Stdout, cmd.Stderr = write, write
		require.Error(t, cmd.Run())
		require.NoError(t, write.Close())
		require.NoFileExists(t, filepath.Join(dir, "fresh.part"))
		os.Remove(filepath.Join(dir, "fresh")) // complete, if the command was done before it heard of that
		requireEmpty(t, dir)
	}
}

// TestInterruptedOutput: a command that is interrupted says which file it has left incomplete.
func TestInterruptedOutput(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	var lines strings.Builder
	for i := range 2000 { // more than a pipe holds
		fmt.Fprintf(&lines, `{"key": "%d", "value": "%0100d"}`+"\n", i, i)
	}
	succeedWith(t, lines.String(), "load", db, "--json-lines")
	pipe, write, err := os.Pipe()
	require.NoError(t, err)
	defer pipe.Close()
	cmd := command(t, "dump", db, "--file", "/dev/fd/3")
	var said strings.Builder
	cmd.Stderr, cmd.ExtraFiles = &said, []*os.File{write}
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	_, err = pipe.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for err == nil { // slowly, so that the command hears the signal before it is done
		time.Sleep(20 * time.Millisecond)
		_, err = pipe.Read(make([]byte, 4096))
	}
	require.Equal(t, io.EOF, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, "flashdbm: interrupted; /dev/fd/3 is incomplete\n", said.String())
	require.Equal(t, exitError, cmd.ProcessState.ExitCode())
}

// TestInterruptedLockWait: the first signal ends a command that waits for a database which another process has open.
func TestInterruptedLockWait(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "a", "b")
	held, err := dbm.Open(db, nil)
	require.NoError(t, err)
	defer held.Close()
	for _, args := range [][]string{{"put", db, "a", "c"}, {"get", db, "a"}, {"salvage", db, db + ".new"}, {"inspect", db}} {
		cmd := command(t, append(args, "--wait", "1h")...)
		var said strings.Builder
		cmd.Stderr = &said
		require.NoError(t, cmd.Start())
		time.Sleep(300 * time.Millisecond) // until it waits, most likely
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Error(t, cmd.Wait(), "%q", args)
		if cmd.ProcessState.ExitCode() >= 0 { // the signal may come before the command handles it
			require.Equal(t, exitError, cmd.ProcessState.ExitCode(), "%q", args)
			require.Equal(t, "flashdbm: interrupted\n", said.String(), "%q", args)
		}
	}
}

// TestInterruptedWait: the first signal ends a command that waits for input. The command has not changed anything.
func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"put", "@", "key"}, {"load", "@"}, {"load", "@", "--bulk", "--json-lines"}, {"restore", "@.new"}, {"del", "@", "--null"}} {
		for _, some := range []string{"", "V"} {
			db := newPath(t)
			succeed(t, "put", db, "a", "b")
			var given []string
			for _, arg := range args {
				given = append(given, strings.Replace(arg, "@", db, 1))
			}
			cmd := command(t, given...)
			from, input, err := os.Pipe() // Wait does not close it
			require.NoError(t, err)
			cmd.Stdin = from
			var said strings.Builder
			cmd.Stderr = &said
			require.NoError(t, cmd.Start())
			_, err = io.WriteString(input, some)
			require.NoError(t, err)
			time.Sleep(500 * time.Millisecond) // by then it usually waits for input
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			require.Error(t, cmd.Wait(), "%q", args)
			require.NoError(t, errors.Join(from.Close(), input.Close()))
			if cmd.ProcessState.ExitCode() >= 0 { // the signal may come before the command handles it
				require.Equal(t, exitError, cmd.ProcessState.ExitCode(), "%q", args)
				require.Equal(t, "flashdbm: interrupted\n", said.String(), "%q", args)
			}
			require.Equal(t, "a\n", succeed(t, "list", db))
		}
	}
}
