package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

// TestMain makes the test binary a flashdbmd in the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("FLASHDBMD_TEST_PROCESS") != "" {
		if a := os.Args; a[1] == "member" { // a member of an etcd that may listen on any address
			if err := (&etcdMember{name: a[2], dir: a[3], clients: a[4], peers: a[5], cluster: a[6]}).run(os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(exitFailed)
			}
			os.Exit(0)
		}
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	// The daemons that tests send these signals to would inherit that they are ignored: by nohup, or in a shell's background.
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

// daemon is a process of flashdbmd.
type daemon struct {
	cmd  *exec.Cmd
	resp string
}

// start starts a process in a directory and waits until it serves.
func start(t *testing.T, dir string, args ...string) *daemon {
	exe, err := os.Executable()
	require.NoError(t, err)
	d := &daemon{cmd: exec.Command(exe, append([]string{"serve", "--dir", dir, "--resp", "127.0.0.1:0"}, args...)...)}
	d.cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1")
	messages, err := d.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() { d.cmd.Process.Kill(); d.cmd.Wait() })
	lines := bufio.NewScanner(messages)
	for lines.Scan() {
		if m := regexp.MustCompile(`RESP at (\S+),`).FindStringSubmatch(lines.Text()); m != nil {
			d.resp = m[1]
			go io.Copy(io.Discard, messages)
			return d
		}
	}
	require.Fail(t, "flashdbmd does not serve", "%v", d.cmd.Wait())
	return nil
}

func (d *daemon) client(t *testing.T, password string) redis.Conn {
	c, err := redis.Dial("tcp", d.resp, redis.DialPassword(password))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestKilled: after a kill -9 in sync mode, every write that was acknowledged to a client of Redis is there, and
// nothing that was not sent.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "--shards", "2")
	const clients = 4
	var acknowledged, sent [clients]int
	var count atomic.Int64
	var all sync.WaitGroup
	for i := range clients {
		c := d.client(t, "")
		all.Go(func() {
			for n := 1; ; n++ {
				sent[i] = n
				if _, err := c.Do("SET", fmt.Sprintf("%d/%d", i, n), n); err != nil {
					return
				}
				acknowledged[i] = n
				count.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return count.Load() > 200 }, time.Minute, time.Millisecond)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGKILL))
	all.Wait()
	d.cmd.Wait()
	c := start(t, dir).client(t, "")
	total := 0
	for i := range clients {
		for n := 1; n <= acknowledged[i]; n++ {
			got, err := redis.Int(c.Do("GET", fmt.Sprintf("%d/%d", i, n)))
			require.NoError(t, err, "client %d: %d of %d", i, n, acknowledged[i])
			require.Equal(t, n, got)
		}
		total += acknowledged[i]
		_, err := redis.Int(c.Do("GET", fmt.Sprintf("%d/%d", i, sent[i]+1)))
		require.ErrorIs(t, err, redis.ErrNil)
	}
	require.Greater(t, total, 100)
	t.Logf("%d acknowledged writes", total)
}

// TestUsers: a client of Redis and the client library see the same records; AUTH, health and metrics work; and the
// process ends in order.
func TestUsers(t *testing.T) {
	dir := t.TempDir()
	admin := free(t)
	d := start(t, dir, "--password", "open sesame", "--http", admin)
	ctx := t.Context()
	_, err := d.client(t, "").Do("SET", "k", "v")
	require.ErrorContains(t, err, "NOAUTH")
	c := d.client(t, "open sesame")
	_, err = c.Do("SET", "k", "v", "EX", 3600)
	require.NoError(t, err)
	sum, err := redis.Int(c.Do("INCR", "n"))
	require.NoError(t, err)
	require.Equal(t, 1, sum)

	h, err := hydra.Dial(ctx, []string{"shm:" + dir + "/node.sock"}, &hydra.Options{Secret: []byte("open sesame")})
	require.NoError(t, err)
	for range 3 {
		value, err := h.Get(ctx, []byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
	}
	assert.Positive(t, h.Stats().OneSided, "no GET was a Read of the daemon's memory")
	require.NoError(t, h.Close())

	for path, says := range map[string]string{"healthz": "ok", "metrics": `flashdbmd_commands_total{command="set"} 1`} {
		answer, err := http.Get("http://" + admin + "/" + path)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, http.StatusOK, answer.StatusCode)
		assert.Contains(t, string(body), says)
	}
	require.Eventually(t, func() bool {
		s, err := askStatus(ctx, dir, "")
		return err == nil && len(s.Shards) == 1 && s.Shards[0].Records == 2
	}, time.Minute, 10*time.Millisecond, "a shard tells some 200 ms later")
	for _, from := range [][]string{{"--dir", dir}, {"--http", admin}} {
		var out bytes.Buffer
		require.Zero(t, run(append([]string{"status", "--json"}, from...), &out, &out), out.String())
		var s status
		require.NoError(t, json.Unmarshal(out.Bytes(), &s))
		assert.Equal(t, d.cmd.Process.Pid, s.Process)
		assert.Equal(t, "sync", s.Durability)
		assert.GreaterOrEqual(t, s.Commands, int64(2))
		require.Len(t, s.Shards, 1)
		assert.Equal(t, 2, s.Shards[0].Records)
		assert.GreaterOrEqual(t, s.Shards[0].Committed, uint64(2))
		assert.True(t, s.Shards[0].Serving && s.Shards[0].Loaded)
		assert.Positive(t, s.FileBytes)
		out.Reset()
		require.Zero(t, run(append([]string{"status"}, from...), &out, &out))
		assert.Regexp(t, `shard +state +records in memory`, out.String())
	}
	info, err := os.Stat(filepath.Join(dir, adminSocket))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, d.cmd.Wait(), "exit code")
	var out bytes.Buffer
	require.Equal(t, exitFailed, run([]string{"status", "--dir", dir}, &out, &out))
	assert.Contains(t, out.String(), "no node answers")
	v, err := redis.String(start(t, dir, "--password", "p").client(t, "p").Do("GET", "k"))
	require.NoError(t, err)
	require.Equal(t, "v", v)
}

// TestKV: the commands of flashdbmd kv on a node that asks for a password.
func TestKV(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "--password", "p", "--durability", "async", "--shards", "2")
	t.Setenv("FLASHDBMD_DIR", dir)
	t.Setenv("FLASHDBMD_PASSWORD", "p")
	for _, x := range []struct {
		args   string
		in     string
		code   int
		prints string
	}{
		{"put greeting hello", "", 0, ""},
		{"get greeting", "", 0, "hello"},
		{"put file", "\x00line\nline", 0, ""},
		{"get file", "", 0, "\x00line\nline"},
		{"get missing", "", exitAbsent, `"missing": hydra: key not found`},
		{"insert greeting again", "", exitAbsent, "key exists"},
		{"cas greeting 5 x", "", exitAbsent, "another version"},
		{"cas new 0 x", "", 0, "regexp:^[0-9]+\n$"},
		{"add count 40", "", 0, "40\n"},
		{"add count 2", "", 0, "42\n"},
		{"add greeting 2", "", exitFailed, "no decimal number"},
		{"--json get count", "", 0, `regexp:^{"key":"count","value":"42","version":[0-9]+,"size":2}\n$`},
		{"--ttl 1h put brief b", "", 0, ""},
		{"stat brief", "", 0, "regexp:^version [0-9]+\nsize 1\nexpiry 20[0-9-]+T[0-9:.]+Z\n$"},
		{"--prefix gr --values scan", "", 0, "greeting\thello\n"},
		{"--limit 2 scan", "", 0, "regexp:^[a-z]+\n[a-z]+\n$"},
		{"del greeting missing", "", exitAbsent, `"missing"`},
		{"get greeting", "", exitAbsent, "not found"},
		{"add count two", "", exitUsage, "no whole number"},
		{"frob x", "", exitUsage, `no command kv "frob"`},
		{"put", "", exitUsage, "too few or too many"},
		{"scan --values", "", exitUsage, "settings stand before the command"},
		{"--password q --timeout 1s get x", "", exitFailed, "secret"},
		{"--dir /nowhere --timeout 300ms get x", "", exitFailed, "/nowhere/node.sock"},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"kv"}, strings.Fields(x.args)...)...)
		cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1")
		cmd.Stdin = strings.NewReader(x.in)
		b, err := cmd.CombinedOutput()
		if x.code == 0 {
			require.NoError(t, err, "%s: %s", x.args, b)
		}
		require.Equal(t, x.code, cmd.ProcessState.ExitCode(), "%s: %s", x.args, b)
		pattern, isPattern := strings.CutPrefix(x.prints, "regexp:")
		switch {
		case isPattern:
			require.Regexp(t, pattern, string(b), x.args)
		case x.code == 0:
			require.Equal(t, x.prints, string(b), x.args)
		default:
			require.Contains(t, string(b), x.prints, x.args)
		}
	}
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, d.cmd.Wait())
}

// TestDemo: the demo at a hundredth of its size.
func TestDemo(t *testing.T) {
	cmd := exec.Command(os.Args[0], "demo", "--records", "10000", "--each", "300ms", "--dir", t.TempDir())
	cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1")
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	t.Logf("%s", b)
	require.Regexp(t, `all 10000 records compared`, string(b))
	require.Regexp(t, `one-sided Reads +[0-9]+ .*\n +messages .*0\.0 %`, string(b))
}

// TestDemoInterrupted: a demo that is interrupted, or whose terminal is closed, removes its directory and ends its
// server.
func TestDemoInterrupted(t *testing.T) {
	for i, args := range [][]string{{"demo"}, {"demo", "ramp"}} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1", "TMPDIR="+dir)
		said := &strings.Builder{}
		cmd.Stderr = said
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			sockets, err := filepath.Glob(filepath.Join(dir, "*", "node.sock"))
			return err == nil && len(sockets) > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, cmd.Process.Signal([]os.Signal{os.Interrupt, syscall.SIGHUP}[i]))
		require.Error(t, cmd.Wait()) // only returns when nobody has standard error any more
		require.Equal(t, "flashdbmd: interrupted\n", said.String())
		require.Equal(t, 3, cmd.ProcessState.ExitCode())
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestDemoNotices: the demo fails if a write that was acknowledged is not there.
func TestDemoNotices(t *testing.T) {
	t.Setenv("FLASHDBMD_TEST_PROCESS", "1")
	d := &demo{out: io.Discard, dir: t.TempDir(), records: 1000, each: time.Millisecond}
	require.NoError(t, d.start(t.Context()))
	defer d.stop(os.Interrupt)
	require.NoError(t, d.load(t.Context()))
	_, err := d.compareAll(t.Context())
	require.NoError(t, err)
	d.writes[7] = span{acknowledged: 1, sent: 1}
	_, err = d.compareAll(t.Context())
	require.ErrorContains(t, err, "record 7 has version 0; 1 was acknowledged")
	d.writes[7] = span{}
	_, err = d.client.Put(t.Context(), keyOf(8), valueOf(9, 0))
	require.NoError(t, err)
	_, err = d.compareAll(t.Context())
	require.ErrorContains(t, err, "record 8 has version 0 and not its bytes")
	require.NoError(t, d.client.Delete(t.Context(), keyOf(8)))
	_, err = d.compareAll(t.Context())
	require.ErrorIs(t, err, hydra.ErrNotFound)
}
