package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

// TestMain makes the test's binary a flashdbmd for the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("FLASHDBMD_TEST_PROCESS") != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
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

func (d *daemon) client(t *testing.T, password string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: d.resp, Password: password, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestKilled: what go-redis had acknowledged is there after a kill -9, in sync mode, and nothing that was not sent.
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
				if c.Set(context.Background(), fmt.Sprintf("%d/%d", i, n), n, 0).Err() != nil {
					return
				}
				acknowledged[i] = n
				count.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return count.Load() > 200 }, 30*time.Second, time.Millisecond)
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGKILL))
	all.Wait()
	d.cmd.Wait()
	c := start(t, dir).client(t, "")
	total := 0
	for i := range clients {
		for n := 1; n <= acknowledged[i]; n++ {
			got, err := c.Get(t.Context(), fmt.Sprintf("%d/%d", i, n)).Int()
			require.NoError(t, err, "client %d: %d of %d", i, n, acknowledged[i])
			require.Equal(t, n, got)
		}
		total += acknowledged[i]
		require.ErrorIs(t, c.Get(t.Context(), fmt.Sprintf("%d/%d", i, sent[i]+1)).Err(), redis.Nil)
	}
	require.Greater(t, total, 100)
	t.Logf("%d acknowledged writes", total)
}

// TestUsers: a client of Redis and the client library see the same records; AUTH, health, metrics, and an orderly end.
func TestUsers(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	admin := l.Addr().String()
	require.NoError(t, l.Close())
	d := start(t, dir, "--password", "open sesame", "--http", admin)
	ctx := t.Context()
	require.ErrorContains(t, d.client(t, "").Set(ctx, "k", "v", 0).Err(), "NOAUTH")
	c := d.client(t, "open sesame")
	require.NoError(t, c.Set(ctx, "k", "v", time.Hour).Err())
	sum, err := c.Incr(ctx, "n").Result()
	require.NoError(t, err)
	require.Equal(t, int64(1), sum)

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
	require.NoError(t, d.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, d.cmd.Wait(), "exit code")
	require.Equal(t, "v", start(t, dir, "--password", "p").client(t, "p").Get(ctx, "k").Val())
}
