package machine_test

import (
	"bufio"
	"context"
	"errors"
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

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	killRounds = flag.Int("kill.rounds", 2, "processes that are killed in each durability")
	killSeed   = flag.Uint64("kill.seed", 1, "first seed of when they are")
)

const (
	killChild   = "FLASHDBM_KILL_CHILD" // the task of the child: load or dump
	killWriters = 4
	killKeys    = 5
)

func killKey(writer, i int) []byte { return fmt.Appendf(nil, "key-%d-%d", writer, i) }

// TestKill kills a node's process in the middle of its work, again and again on the same directory. A writer's
// transaction n sets all keys of the writer to n; the writer begins n+1 when n was acknowledged. Afterwards all keys
// of a writer have the same number: in sync mode at least the last one that was acknowledged, in async mode at least
// the one that an earlier life had found. And nothing stays prepared.
func TestKill(t *testing.T) {
	if os.Getenv(killChild) != "" {
		killChildMain(t)
		return
	}
	for _, mode := range []partition.Durability{partition.Async, partition.Sync} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var found [killWriters]int
			acknowledged, lost := 0, 0
			for round := range *killRounds {
				r := rand.New(rand.NewPCG(*killSeed+uint64(round), uint64(mode)))
				acks := killOnce(t, dir, mode, found, time.Duration(20+r.IntN(500))*time.Millisecond)
				now := killDump(t, dir, mode)
				for w := range killWriters {
					acknowledged += acks[w] - found[w]
					least := acks[w]
					if mode == partition.Async {
						least = found[w]
						lost += max(0, acks[w]-now[w])
					}
					require.GreaterOrEqual(t, now[w], least, "round %d: writer %d", round, w)
					require.LessOrEqual(t, now[w], acks[w]+1, "round %d: writer %d", round, w)
				}
				found = now
			}
			t.Logf("%d processes killed, %d transactions acknowledged, %d lost", *killRounds, acknowledged, lost)
			assert.Positive(t, acknowledged)
		})
	}
}

func killCommand(t *testing.T, what, dir string, mode partition.Durability, found [killWriters]int) *exec.Cmd {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestKill$", "-test.timeout", "60s")
	cmd.Env = append(os.Environ(), killChild+"="+what, "KILL_DIR="+dir, fmt.Sprintf("KILL_MODE=%d", mode), "KILL_FOUND="+strings.Trim(fmt.Sprint(found), "[]"))
	cmd.Stderr = os.Stderr
	return cmd
}

// killOnce runs a node with its load, kills it, and returns the last acknowledged transaction of each writer.
func killOnce(t *testing.T, dir string, mode partition.Durability, found [killWriters]int, after time.Duration) (acks [killWriters]int) {
	cmd := killCommand(t, "load", dir, mode, found)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	acks = found
	lines := bufio.NewScanner(out)
	for begun := false; lines.Scan(); {
		var w, n int
		if got, err := fmt.Sscanf(lines.Text(), "ack %d %d", &w, &n); got != 2 || err != nil {
			if strings.Contains(lines.Text(), "FAIL") || strings.Contains(lines.Text(), "_test.go") {
				t.Error(lines.Text())
			}
			continue
		}
		require.Equal(t, acks[w]+1, n)
		if acks[w] = n; !begun {
			begun = true
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait(), "it was killed")
	return acks
}

func killDump(t *testing.T, dir string, mode partition.Durability) (found [killWriters]int) {
	out, err := killCommand(t, "dump", dir, mode, found).Output()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		var w, n int
		if got, _ := fmt.Sscanf(line, "found %d %d", &w, &n); got == 2 {
			found[w] = n
		}
	}
	return found
}

type writer interface {
	PutAll(context.Context, []ramp.Pair) (ramp.Timestamp, error)
	GetAll(context.Context, [][]byte) ([]ramp.Value, error)
}

func killChildMain(t *testing.T) {
	mode, _ := strconv.Atoi(os.Getenv("KILL_MODE"))
	net := mem.NewNetwork()
	d := net.Open()
	n, err := machine.Open(machine.Options{
		Dir: os.Getenv("KILL_DIR"), Partitions: 3, Durability: partition.Durability(mode), Extent: 1 << 20, Memory: 4 << 20,
		Listen: []machine.Listen{{Domain: d, Addr: "node"}},
	})
	require.NoError(t, err)
	ctx := context.Background()
	clients := []writer{ramp.Local(n, 0)}
	c, err := ramp.Dial(ctx, []string{"mem:node"}, &ramp.Options{Fabrics: map[string]fabric.Domain{"mem": net.Open()}})
	require.NoError(t, err)
	clients = append(clients, c)
	if os.Getenv(killChild) == "dump" {
		killFound(t, n, clients)
		require.NoError(t, c.Close())
		require.NoError(t, n.Close())
		return
	}
	began := strings.Fields(os.Getenv("KILL_FOUND"))
	var wait sync.WaitGroup
	for w := range killWriters {
		from, err := strconv.Atoi(began[w])
		require.NoError(t, err)
		wait.Go(func() {
			for n := from + 1; ; n++ {
				var pairs []ramp.Pair
				for i := range killKeys {
					pairs = append(pairs, ramp.Pair{Key: killKey(w, i), Value: fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", n%300))})
				}
				_, err := clients[w%2].PutAll(ctx, pairs)
				for errors.Is(err, ramp.ErrFull) {
					time.Sleep(time.Millisecond)
					_, err = clients[w%2].PutAll(ctx, pairs)
				}
				if err != nil {
					fmt.Println("FAIL", err)
					return
				}
				fmt.Printf("ack %d %d\n", w, n)
			}
		})
	}
	wait.Wait()
}

// killFound prints the number of each writer's keys, after both kinds of clients have found all keys of the writer to
// be of one transaction.
func killFound(t *testing.T, n *machine.Node, clients []writer) {
	for w := range killWriters {
		var keys [][]byte
		for i := range killKeys {
			keys = append(keys, killKey(w, i))
		}
		for _, c := range clients {
			values, err := c.GetAll(context.Background(), keys)
			require.NoError(t, err)
			for _, v := range values {
				require.Equal(t, values[0], v, "writer %d: a part of a transaction", w)
			}
			n := 0
			fmt.Sscanf(string(values[0].Value), "%d ", &n)
			fmt.Printf("\nfound %d %d\n", w, n)
		}
	}
	require.Eventually(t, func() bool {
		for _, p := range n.Status().Partitions {
			if p.Prepared > 0 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "nothing stays prepared")
}
