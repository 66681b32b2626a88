//go:build unix

package fabrictest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process is an owner in a separate process: this test's binary, run again.
type process struct {
	cmd   *exec.Cmd
	at    string
	in    io.WriteCloser
	lines *bufio.Reader
	over  bool // it was killed
}

func startProcess(t *testing.T, addr string) owner {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childVariable+"="+addr)
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if !p.over {
			p.cmd.Process.Signal(syscall.SIGCONT) // a failed test may have left it stopped
			p.in.Close()
			defer p.watch()()
			assert.NoError(t, p.cmd.Wait(), "the owner's process")
		}
	})
	p.lines = bufio.NewReaderSize(out, 1<<20)
	line, err := p.lines.ReadString('\n')
	require.NoError(t, err, "the owner's process has not begun")
	p.at = strings.TrimSpace(line)
	return p
}

func (p *process) addr() string { return p.at }

// watch makes the owner's process print its goroutines and end if a request takes far longer than it may. The
// returned function stops that.
func (p *process) watch() (stop func() bool) {
	return time.AfterFunc(2*patience, func() { p.cmd.Process.Signal(syscall.SIGQUIT) }).Stop
}

func (p *process) call(t *testing.T, r request) (resp response) {
	t.Helper()
	b, err := json.Marshal(r)
	require.NoError(t, err)
	defer p.watch()()
	_, err = p.in.Write(append(b, '\n'))
	require.NoError(t, err, r.Do)
	line, err := p.lines.ReadBytes('\n')
	require.NoError(t, err, r.Do)
	require.NoError(t, json.Unmarshal(line, &resp))
	require.Empty(t, resp.Err, r.Do)
	return resp
}

func (p *process) signal(t *testing.T, what string) {
	t.Helper()
	s := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP, "continue": syscall.SIGCONT}[what]
	require.NoError(t, p.cmd.Process.Signal(s))
	switch what {
	case "kill":
		p.over = true
		p.cmd.Wait()
	case "stop":
		// The signal may not have taken effect yet: on a busy machine threads of the owner still run, and one of them
		// may answer.
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		require.NoError(t, err)
		require.True(t, status.Stopped(), "%v", status)
	}
}

// processTime returns the processor time of this process so far.
func processTime() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}
