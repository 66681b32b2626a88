//go:build verbs

package hydra_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/verbs"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/shard"
)

// verbsNode is the environment variable that gives the node of TestVerbs, a process of its own, its address.
const verbsNode = "VERBS_NODE"

func verbsOptions() verbs.Options {
	return verbs.Options{Provider: os.Getenv("VERBS_PROVIDER"), Addr: os.Getenv("VERBS_ADDR")}
}

// TestVerbs has a client and a node in two processes on an RDMA device: GETs and PUTs by message, and GETs by
// one-sided Reads, which succeed while the node's process is stopped.
func TestVerbs(t *testing.T) {
	if addr := os.Getenv(verbsNode); addr != "" {
		serveVerbs(t, addr)
		return
	}
	if os.Getenv("VERBS_ADDR") == "" {
		t.Skip("VERBS_ADDR is to be this machine's IP address on an RDMA device's network")
	}
	free, err := net.Listen("tcp", os.Getenv("VERBS_ADDR")+":0")
	require.NoError(t, err)
	addr := free.Addr().String()
	require.NoError(t, free.Close())
	node := exec.Command(os.Args[0], "-test.run", "^TestVerbs$")
	node.Env = append(os.Environ(), verbsNode+"="+addr)
	node.Stderr = os.Stderr
	in, err := node.StdinPipe()
	require.NoError(t, err)
	out, err := node.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, node.Start())
	t.Cleanup(func() {
		node.Process.Signal(syscall.SIGCONT)
		in.Close()
		assert.NoError(t, node.Wait(), "the node")
	})
	lines := bufio.NewReader(out)
	for said, line := "", ""; !strings.HasPrefix(line, "serves"); said += line {
		line, err = lines.ReadString('\n')
		require.NoError(t, err, "the node has said: %s", said)
	}

	d, err := verbs.Open(verbsOptions())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	byMessage, oneSided := dialVerbs(t, d, addr, -1), dialVerbs(t, d, addr, 0)
	const keys = 20
	key := func(i int) []byte { return fmt.Append(nil, "key", i%keys) }
	value := func(i int) []byte { return bytes.Repeat(fmt.Append(nil, i%keys, " "), 10) }
	measure := func(what string, do func(i int)) float64 {
		const clients, limit = 2, 3 * time.Second
		var count [clients]int
		before, began := processTime(t, node.Process.Pid), time.Now()
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for i := c; time.Since(began) < limit || count[c] < 10*keys; i += clients {
					do(i)
					count[c]++
				}
			})
		}
		all.Wait()
		took, spent, n := time.Since(began), processTime(t, node.Process.Pid)-before, count[0]+count[1]
		t.Logf("%s: %d by 2 goroutines, %.0f/s; the node's processor: %.1f %%, %.1f µs for each",
			what, n, float64(n)/took.Seconds(), 100*spent.Seconds()/took.Seconds(), float64(spent.Microseconds())/float64(n))
		return spent.Seconds() / float64(n)
	}
	put := func(i int) {
		_, err := byMessage.Put(t.Context(), key(i), value(i))
		assert.NoError(t, err)
	}
	get := func(c *hydra.Client) func(i int) {
		return func(i int) {
			got, err := c.Get(t.Context(), key(i))
			assert.NoError(t, err)
			assert.Equal(t, string(value(i)), string(got))
		}
	}
	for i := range keys {
		put(i)
	}
	measure("PUT", put)
	message := measure("GET by message", get(byMessage))
	for i := range keys { // by message, which brings a pointer
		get(oneSided)(i)
	}
	before := oneSided.Stats()
	read := measure("GET by a one-sided Read", get(oneSided))
	after := oneSided.Stats()
	reads, messages := after.OneSided-before.OneSided, after.Messages-before.Messages
	t.Logf("%d of these GETs were Reads; %d messages", reads, messages)
	if !d.Caps().OneSided {
		return
	}
	assert.Greater(t, reads, 2*messages)
	assert.Less(t, read, message/2, "the node's processor time for a GET")

	// Tenure ends a second after the node has last granted it; a part of that is enough.
	get(oneSided)(1)
	require.NoError(t, node.Process.Signal(syscall.SIGSTOP))
	before = oneSided.Stats()
	count := 0
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; count++ {
		get(oneSided)(1)
	}
	after = oneSided.Stats()
	require.NoError(t, node.Process.Signal(syscall.SIGCONT))
	t.Logf("%d GETs while the node's process was stopped", count)
	assert.Positive(t, count)
	assert.EqualValues(t, count, after.OneSided-before.OneSided)

	_, err = byMessage.Put(t.Context(), key(1), []byte("new"))
	require.NoError(t, err)
	got, err := oneSided.Get(t.Context(), key(1))
	require.NoError(t, err)
	assert.Equal(t, "new", string(got), "a pointer to what was overwritten proves nothing")
}

func dialVerbs(t *testing.T, d fabric.Domain, addr string, pointers int) *hydra.Client {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := hydra.Dial(ctx, []string{"verbs:" + addr}, &hydra.Options{Pointers: pointers, Timeout: time.Minute, Fabrics: map[string]fabric.Domain{"verbs": d}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func serveVerbs(t *testing.T, addr string) {
	d, err := verbs.Open(verbsOptions())
	require.NoError(t, err)
	defer d.Close()
	n, err := machine.Open(machine.Options{
		Durability: shard.Memory, Extent: 16 << 20, Listen: []machine.Listen{{Domain: d, Addr: addr, Public: "verbs:" + addr}},
	})
	require.NoError(t, err)
	fmt.Println("serves")
	bufio.NewReader(os.Stdin).ReadString('\n') // until the test ends
	require.NoError(t, n.Close())
}

// processTime returns the processor time of a process so far, to 10 ms.
func processTime(t *testing.T, pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
