package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal returns the two ends of a pseudoterminal: what is written to far can be read from near.
func openTerminal(t *testing.T) (near, far *os.File) {
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudo terminals:", err)
	}
	t.Cleanup(func() { near.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return near, far
}

// onTerminal runs the command with a terminal for the streams that choose sets, and returns what the terminal
// shows.
func onTerminal(t *testing.T, choose func(cmd *exec.Cmd, far *os.File), args ...string) string {
	return watchTerminal(t, choose, func(string) {}, args...)
}

// watchTerminal calls watch with everything shown so far, each time there is more.
func watchTerminal(t *testing.T, choose func(cmd *exec.Cmd, far *os.File), watch func(string), args ...string) string {
	near, far := openTerminal(t)
	cmd := command(t, args...)
	choose(cmd, far)
	require.NoError(t, cmd.Start())
	require.NoError(t, far.Close())
	shown := make(chan string)
	go func() {
		var text []byte
		for part := make([]byte, 1000); ; watch(string(text)) {
			n, err := near.Read(part)
			if text = append(text, part[:n]...); err != nil { // the last process has closed the far end
				break
			}
		}
		shown <- strings.ReplaceAll(string(text), "\r\n", "\n")
	}()
	err := cmd.Wait()
	text := <-shown
	require.NoError(t, err, text)
	return text
}

func stdoutOnTerminal(cmd *exec.Cmd, far *os.File) { cmd.Stdout = far }
func stderrOnTerminal(cmd *exec.Cmd, far *os.File) { cmd.Stderr = far }

func TestGetOnTerminal(t *testing.T) {
	db := newPath(t)
	for value, shown := range map[string]string{
		"good morning": "good morning\n",
		"line\n":       "line\n",
		"a\n\tb":       "a\n\tb\n",
		"":             "\n",
		"\x1b[2J":      `"\x1b[2J"` + "\n",
		"\xff\n":       `"\xff\n"` + "\n",
	} {
		succeedWith(t, value, "put", db, "a")
		// The terminal may expand a tab to spaces.
		got := onTerminal(t, stdoutOnTerminal, "get", db, "a")
		require.Equal(t, shown, strings.ReplaceAll(got, "        ", "\t"))
	}
	succeedWith(t, "\xff\n", "put", db, "a")
	require.Equal(t, "/wo=\n", onTerminal(t, stdoutOnTerminal, "get", db, "--base64", "YQ=="))
}

func TestListOnTerminal(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "a\x1b", "1")
	require.Equal(t, `"a\x1b"`+"\n", onTerminal(t, stdoutOnTerminal, "list", db))
}

func TestPutFromTerminal(t *testing.T) {
	db := newPath(t)
	near, far := openTerminal(t)
	defer far.Close()
	cmd := command(t, "put", db, "a")
	var hint strings.Builder
	cmd.Stdin, cmd.Stderr = far, &hint
	require.NoError(t, cmd.Start())
	_, err := near.WriteString("typed\n\x04") // Ctrl-D
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.Contains(t, hint.String(), "Ctrl-D")
	require.Equal(t, "typed\n", succeed(t, "get", db, "a"))
}

// Progress is drawn while a load waits for a slow pipe, and erased.
func TestProgressOnTerminal(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	const progress = "load: 2 B, "
	seen := make(chan struct{})
	see := sync.OnceFunc(func() { close(seen) })
	shown := watchTerminal(t, func(cmd *exec.Cmd, far *os.File) {
		stderrOnTerminal(cmd, far)
		cmd.Stdin = slowDump{seen, strings.NewReader(printHeader + " a\n b\n"), strings.NewReader("DATA=END\n")}
	}, func(text string) {
		if strings.Contains(text, progress) {
			see()
		}
	}, "load", db)
	require.Contains(t, shown, progress)
	require.True(t, strings.HasSuffix(shown, "\r\x1b[K"), "%q", shown)
}

// slowDump returns the end of a dump only after the beginning has been seen.
type slowDump struct {
	seen       chan struct{}
	begin, end io.Reader
}

func (s slowDump) Read(p []byte) (int, error) {
	if n, err := s.begin.Read(p); err != io.EOF {
		return n, err
	}
	select {
	case <-s.seen:
	case <-time.After(waitForProcess):
	}
	return s.end.Read(p)
}

// An interrupted load closes the database and reports the interruption.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	cmd := command(t, "load", db)
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	stop := make(chan struct{})
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		defer input.Close()
		io.WriteString(input, printHeader)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := fmt.Fprintf(input, " %09d\n v\n", i); err != nil {
					return
				}
			}
		}
	}()
	require.Eventually(t, func() bool {
		status, err := os.Stat(db)
		return err == nil && status.Size() > 0
	}, waitForProcess, waitForProcess/1000)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Error(t, cmd.Wait())
	close(stop)
	<-fed
	require.Equal(t, exitError, cmd.ProcessState.ExitCode())
	require.Equal(t, "flashdbm: interrupted\n", said.String())
	require.Zero(t, strings.Count(succeed(t, "list", db), "\n")%loadBatchRecords, "whole batches")
}

// TestWatchOnATerminal: stat --watch draws in place, on the alternate screen, and leaves the normal screen
// unchanged.
func TestWatchOnATerminal(t *testing.T) {
	path := newPath(t)
	succeed(t, "put", path, "a", "1")
	var process *exec.Cmd
	interrupted := false
	text := watchTerminal(t, func(cmd *exec.Cmd, far *os.File) { stdoutOnTerminal(cmd, far); process = cmd }, func(shown string) {
		if !interrupted && strings.Count(shown, toTop) >= 3 {
			interrupted = true
			_ = process.Process.Signal(os.Interrupt)
		}
	}, "stat", path, "--watch=10ms")
	require.True(t, strings.HasPrefix(text, enterScreen))
	require.True(t, strings.HasSuffix(text, leaveScreen))
	require.Equal(t, 1, strings.Count(text, enterScreen))
	require.Regexp(t, `records +1`, text)
	require.Contains(t, text, "segments, 1 a character")
	require.Contains(t, text, "Ctrl-C ends")
}
