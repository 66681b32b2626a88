//go:build verbs

package ramp_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/verbs"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/wire"
)

// verbsNode is the environment variable that gives the node of TestVerbs, a process of its own, its address.
const verbsNode = "VERBS_NODE"

func openVerbs(t *testing.T) fabric.Domain {
	d, err := verbs.Open(verbs.Options{Provider: os.Getenv("VERBS_PROVIDER"), Addr: os.Getenv("VERBS_ADDR")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// TestVerbs has clients and a table of three partitions in two processes on an RDMA device: transactions by ring and by Sends, and GetAll by one-sided Reads,
// which succeeds while the node's process is stopped.
func TestVerbs(t *testing.T) {
	if addr := os.Getenv(verbsNode); addr != "" {
		n, err := machine.Open(machine.Options{
			Partitions: 3, Durability: partition.Memory, Extent: 1 << 20, Listen: []machine.Listen{{Domain: openVerbs(t), Addr: addr, Public: "verbs:" + addr}},
		})
		require.NoError(t, err)
		fmt.Println("serves")
		bufio.NewReader(os.Stdin).ReadString('\n') // until the test ends
		require.NoError(t, n.Close())
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

	d := openVerbs(t)
	dial := func(o ramp.Options) *ramp.Client {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		o.Timeout, o.Fabrics = time.Minute, map[string]fabric.Domain{"verbs": d}
		c, err := ramp.Dial(ctx, []string{"verbs:" + addr}, &o)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d"), []byte("e"), []byte("f"), []byte("g"), []byte("h")}
	write := func(c *ramp.Client, value string) {
		var pairs []ramp.Pair
		for _, k := range keys {
			pairs = append(pairs, ramp.Pair{Key: k, Value: []byte(value)})
		}
		_, err := c.PutAll(t.Context(), pairs)
		require.NoError(t, err)
	}
	read := func(c *ramp.Client, value string) {
		values, err := c.GetAll(t.Context(), keys)
		require.NoError(t, err)
		for _, v := range values {
			require.Equal(t, value, string(v.Value))
			require.Equal(t, values[0].TS, v.TS)
		}
	}
	messages, sends, reads := dial(ramp.Options{Slots: -1}), dial(ramp.Options{Carrier: wire.CarrierSend}), dial(ramp.Options{})
	for i, c := range []*ramp.Client{messages, sends, reads} {
		write(c, fmt.Sprint("value ", i))
		for _, r := range []*ramp.Client{messages, sends, reads} {
			read(r, fmt.Sprint("value ", i))
		}
	}
	if !d.Caps().OneSided {
		return
	}
	read(reads, "value 2") // tenure ends a second after the node has last granted it; a part of that is enough
	require.NoError(t, node.Process.Signal(syscall.SIGSTOP))
	before, count := reads.Stats(), 0
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; count++ {
		read(reads, "value 2")
	}
	after := reads.Stats()
	require.NoError(t, node.Process.Signal(syscall.SIGCONT))
	t.Logf("%d transactions of %d keys read while the node's process was stopped", count, len(keys))
	assert.Positive(t, count)
	assert.EqualValues(t, count*len(keys), after.OneSided-before.OneSided)
	assert.Equal(t, before.Messages, after.Messages)
	write(messages, "new")
	read(reads, "new")
}
