package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runCommandVariable makes the test binary behave as the command, so that tests see the same as a shell: real
// streams, exit codes and signals.
const runCommandVariable = "FLASHDBM_TEST_RUN_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runCommandVariable) != "" {
		main()
	}
	// A shell starts background processes with SIGINT ignored, and nohup ignores SIGHUP. The commands that tests send
	// these signals to would inherit that. They do not if the signals are caught here.
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// waitForProcess is how long a test waits at most for another process.
const waitForProcess = time.Minute

// command returns a process that runs the command line.
func command(t testing.TB, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = commandEnvironment()
	return cmd
}

// commandEnvironment makes the test binary run as the command. Without its change for the race detector, which
// waits for a second at each exit, most of the time of the tests would be spent there.
func commandEnvironment() []string {
	return append(os.Environ(), runCommandVariable+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
}

// result is the outcome of a run of the command.
type result struct {
	code           int
	stdout, stderr string
}

// execute runs the command line with input on its standard input.
func execute(t testing.TB, input string, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...), strings.NewReader(input))
}

func finish(t testing.TB, cmd *exec.Cmd, stdin io.Reader) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// succeed runs the command line, which must succeed without printing a message, and returns its output.
func succeed(t testing.TB, args ...string) string {
	t.Helper()
	return succeedWith(t, "", args...)
}

func succeedWith(t testing.TB, input string, args ...string) string {
	t.Helper()
	r := execute(t, input, args...)
	require.Equal(t, result{exitDone, r.stdout, ""}, r, "%q", args)
	return r.stdout
}

// fail runs the command line, which must exit with code, print nothing to standard output, and print a message of
// one line that contains all of says.
func fail(t testing.TB, code int, says []string, args ...string) {
	t.Helper()
	failWith(t, "", code, says, args...)
}

func failWith(t testing.TB, input string, code int, says []string, args ...string) {
	t.Helper()
	r := execute(t, input, args...)
	require.Equal(t, code, r.code, "%q: %s", args, r.stderr)
	require.Empty(t, r.stdout, "%q", args)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %q", r.stderr)
	require.True(t, strings.HasPrefix(r.stderr, "flashdbm: "), r.stderr)
	for _, part := range says {
		require.Contains(t, r.stderr, part, "%q", args)
	}
}

// newPath returns the path of a database that does not exist yet. If the test leaves a database there, it must pass
// a check.
func newPath(t testing.TB) string {
	path := filepath.Join(t.TempDir(), "test.fdbm")
	t.Cleanup(func() {
		if _, err := os.Stat(path); err == nil && !t.Failed() {
			checkDatabase(t, path)
		}
	})
	return path
}

func checkDatabase(t testing.TB, path string) {
	// The context of a test is canceled before its cleanups run.
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "check", path)
	cmd.Env = commandEnvironment()
	r := finish(t, cmd, nil)
	require.Equal(t, exitDone, r.code, r.stderr)
}

// writeFile makes a file with content and returns its path.
func writeFile(t testing.TB, content string) string {
	path := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func readFile(t testing.TB, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
