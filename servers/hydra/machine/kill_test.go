package machine

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

var (
	killRounds = flag.Int("kill.rounds", 2, "processes that are killed in each durability")
	killSeed   = flag.Uint64("kill.seed", 1, "first seed of when they are")
)

const (
	killChild   = "FLASHDBM_KILL_CHILD" // the task of the child: load or dump
	killClients = 4
	killKeys    = 20
)

// The work of a client is an endless list of changes: change i adds one to the client's counter if i is even, and
// sets one of its keys to i otherwise. A client begins a change when the last one has been answered. So a file has
// the first P changes of the list, for some P.

func killKey(client, i int) string { return fmt.Sprintf("key-%d-%d", client, i/2%killKeys) }
func killCounter(c int) string     { return fmt.Sprintf("counter-%d", c) }

// TestKill kills a node's process in the middle of its work, again and again on the same directory, and checks what
// the file has: in sync mode everything that was acknowledged, in async mode a prefix, in memory mode nothing; and no
// change twice. The test knows what was acknowledged from the output of the process.
func TestKill(t *testing.T) {
	if os.Getenv(killChild) != "" {
		killChildMain(t)
		return
	}
	for _, mode := range []shard.Durability{shard.Memory, shard.Async, shard.Sync} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			if testing.Short() && mode == shard.Memory {
				t.Skip("short")
			}
			t.Parallel()
			dir := t.TempDir()
			done := [killClients]int{} // number of changes that the file has
			acknowledged, lost := 0, 0
			for round := range *killRounds {
				r := rand.New(rand.NewPCG(*killSeed+uint64(round), uint64(mode)))
				acks := killOnce(t, dir, mode, done, time.Duration(20+r.IntN(400))*time.Millisecond)
				found := killDump(t, dir, mode)
				for c := range killClients {
					p, ok := found.prefix(c, acks[c]+1)
					require.True(t, ok, "round %d: client %d, %d changes acknowledged: the file has %v, which is no prefix", round, c, acks[c], found)
					acknowledged += acks[c] - done[c]
					switch mode {
					case shard.Memory:
						require.Zero(t, p)
					case shard.Sync:
						require.GreaterOrEqual(t, p, acks[c], "round %d: acknowledged changes of client %d are lost", round, c)
					case shard.Async:
						require.GreaterOrEqual(t, p, done[c], "round %d: what an earlier life of client %d had found is lost", round, c)
						lost += max(0, acks[c]-p)
					}
					done[c] = p
				}
				if (round+1)%25 == 0 {
					t.Logf("%d rounds, %d acknowledged changes, %d lost", round+1, acknowledged, lost)
				}
			}
			t.Logf("%d rounds, %d acknowledged changes, %d lost", *killRounds, acknowledged, lost)
			assert.Positive(t, acknowledged)
		})
	}
}

func killCommand(t *testing.T, what, dir string, mode shard.Durability, done [killClients]int) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestKill$", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), killChild+"="+what, "KILL_DIR="+dir, fmt.Sprintf("KILL_MODE=%d", mode), "KILL_DONE="+strings.Trim(fmt.Sprint(done), "[]"))
	cmd.Stderr = os.Stderr
	return cmd
}

// killOnce runs a node with its load, kills it, and returns how many changes of each client were acknowledged.
func killOnce(t *testing.T, dir string, mode shard.Durability, done [killClients]int, after time.Duration) (acks [killClients]int) {
	cmd := killCommand(t, "load", dir, mode, done)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	acks = done
	lines := bufio.NewScanner(out)
	for first := true; lines.Scan(); first = false {
		var c, i int
		if n, err := fmt.Sscanf(lines.Text(), "ack %d %d", &c, &i); n != 2 || err != nil {
			if strings.Contains(lines.Text(), "FAIL") || strings.Contains(lines.Text(), "_test.go") {
				t.Error(lines.Text())
			}
			continue
		}
		require.Equal(t, acks[c]+1, i, "a change is acknowledged out of order")
		acks[c] = i
		if first || acks == done {
			continue
		}
		if after > 0 {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
			after = 0
		}
	}
	io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait(), "it was killed")
	return acks
}

// killFound is what a node has after it was killed: the counter and the keys of each client.
type killFound struct {
	counter [killClients]int
	keys    [killClients][killKeys]int
}

func killDump(t *testing.T, dir string, mode shard.Durability) (f killFound) {
	out, err := killCommand(t, "dump", dir, mode, [killClients]int{}).Output()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		var c, k, v int
		if n, _ := fmt.Sscanf(line, "counter %d %d", &c, &v); n == 2 {
			f.counter[c] = v
		} else if n, _ := fmt.Sscanf(line, "key %d %d %d", &c, &k, &v); n == 3 {
			f.keys[c][k] = v
		}
	}
	return f
}

// prefix returns a number of changes of the client, at most most, that produce what was found. ok is false if there
// is no such number.
func (f *killFound) prefix(c, most int) (p int, ok bool) {
	for p := max(0, 2*f.counter[c]-1); p <= min(most, 2*f.counter[c]+1); p++ {
		var keys [killKeys]int
		for i := 1; i <= p; i++ {
			if i%2 == 1 {
				keys[i/2%killKeys] = i
			}
		}
		if p/2 == f.counter[c] && keys == f.keys[c] {
			return p, true
		}
	}
	return 0, false
}

func killChildMain(t *testing.T) {
	mode, _ := strconv.Atoi(os.Getenv("KILL_MODE"))
	net := mem.NewNetwork()
	o := Options{Dir: os.Getenv("KILL_DIR"), Durability: shard.Durability(mode), Extent: 1 << 20}
	n := open(t, net, o)
	if os.Getenv(killChild) == "dump" {
		c := dial(t, net.Open(), "node", 1, 1)
		value := func(key string) int {
			v, s := c.get(key)
			if s == protocol.StatusNotFound {
				return 0
			}
			require.Equal(t, protocol.StatusOK, s)
			i, err := strconv.Atoi(v)
			require.NoError(t, err)
			return i
		}
		for id := range killClients {
			fmt.Printf("\ncounter %d %d\n", id, value(killCounter(id)))
			for k := range killKeys {
				fmt.Printf("key %d %d %d\n", id, k, value(fmt.Sprintf("key-%d-%d", id, k)))
			}
		}
		c.close()
		require.NoError(t, n.Close())
		return
	}
	done := strings.Fields(os.Getenv("KILL_DONE"))
	var wait sync.WaitGroup
	for id := range killClients {
		first, err := strconv.Atoi(done[id])
		require.NoError(t, err)
		if id%2 == 0 {
			wait.Go(func() { killLoad(t, net, id, first+1) })
		} else {
			c, err := hydra.Local(n, nil)
			require.NoError(t, err)
			wait.Go(func() { killLocal(t, c, id, first+1) })
		}
	}
	wait.Wait()
}

// killLoad makes changes, and prints each one that was acknowledged, until it is killed. Sometimes it loses its
// connection and repeats a change on a new connection.
func killLoad(t *testing.T, net *mem.Network, id, i int) {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(id)))
	clientID := r.Uint64()
	d := net.Open()
	c := dial(t, d, "node", clientID, 1)
	for number := uint64(1); ; number++ {
		q := protocol.Request{Op: protocol.OpPut, Key: []byte(killKey(id, i)), Value: []byte(strconv.Itoa(i)), Number: number, Oldest: number}
		if i%2 == 0 {
			q = protocol.Request{Op: protocol.OpAdd, Key: []byte(killCounter(id)), Operand: 1, Number: number, Oldest: number}
		}
		if r.IntN(200) == 0 {
			c.send(q)
			time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
			c.close()
			c = dial(t, d, "node", clientID, number+1)
		}
		s, _, _ := c.do(q)
		require.Equal(t, protocol.StatusOK, s)
		fmt.Printf("ack %d %d\n", id, i)
		i++
	}
}

// killLocal does the same by function calls.
func killLocal(t *testing.T, c *hydra.Client, id, i int) {
	for ; ; i++ {
		var err error
		if i%2 == 0 {
			_, err = c.Add(t.Context(), []byte(killCounter(id)), 1)
		} else {
			_, err = c.Put(t.Context(), []byte(killKey(id, i)), []byte(strconv.Itoa(i)))
		}
		require.NoError(t, err)
		fmt.Printf("ack %d %d\n", id, i)
	}
}

// send sends a request and does not wait for the answer.
func (c *client) send(q protocol.Request) {
	c.request++
	b, err := c.c.Begin(q.BodySize())
	require.NoError(c.t, err)
	c.c.End(&wire.Header{Op: uint8(q.Op), Flags: uint8(q.Flags), Request: c.request}, q.AppendBody(b))
	c.c.Flush()
}

// answer waits for the answer to the last request.
func (c *client) answer() (protocol.Status, protocol.Flags, []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		c.g.Step()
		if m, ok := c.c.Receive(); ok {
			require.Equal(c.t, c.request, m.Request)
			return protocol.Status(m.Status), protocol.Flags(m.Flags), m.Body
		}
		require.NoError(c.t, c.c.Err())
		if c.g.Arm() {
			require.NoError(c.t, c.g.Wait(ctx, 1000))
		}
	}
}
