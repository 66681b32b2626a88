package main

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp"
)

// TestRampClusterCut is TestClusterCut for a RAMP table, in each durability: the network is cut between the primary
// of a partition and others, or the primary is stopped, while clients write and read transactions over TCP. No
// transaction is seen in part, nothing that was acknowledged is lost, transactions go on after the cut or the stop
// has ended, and nothing stays prepared.
func TestRampClusterCut(t *testing.T) {
	rounds := map[string]int{"cuts": *clusterCuts, "pauses": *clusterPauses}
	for i, mode := range strings.Split(*rampModes, ",") {
		for j, what := range []string{"cuts", "pauses"} {
			t.Run(mode+"/"+what, func(t *testing.T) {
				if rounds[what] == 0 {
					t.Skip("see make cut-cluster")
				}
				cutRampCluster(t, mode, what, 2*i+j, rounds[what])
			})
		}
	}
}

func cutRampCluster(t *testing.T, mode, what string, number, rounds int) {
	s := newIsland(t, mode, number, "--table", "ramp", "--shards", strconv.Itoa(rampPartitions))
	s.rampLevel(false)
	w := &rampLoad{t: t}
	for range 2 {
		none := mem.NewNetwork().Open() // no shared memory: the sockets of the nodes would bypass the cuts
		t.Cleanup(func() { none.Close() })
		o := rampOptions()
		o.Fabrics = map[string]fabric.Domain{"shm": none}
		c, err := ramp.Dial(t.Context(), []string{"tcp:" + s.tcp["a"], "tcp:" + s.tcp["b"], "tcp:" + s.tcp["c"]}, o)
		require.NoError(t, err, s.String())
		t.Cleanup(func() { c.Close() })
		w.begin(c, 3, 3)
	}
	defer w.end()
	goesOn := func(after string) time.Duration {
		now := time.Now().UnixNano()
		require.Eventually(t, func() bool { return w.began.Load() > now || t.Failed() }, time.Minute, time.Millisecond, "no transaction behind %s:\n%s", after, s)
		return time.Duration(time.Now().UnixNano() - now)
	}
	rnd := rand.New(rand.NewPCG(*clusterSeed, uint64(number)))
	var gaps []time.Duration
	changes := 0
	for round := range rounds {
		goesOn("the start")
		p := ""
		for ; p == ""; p = s.rampPrimary(round % rampPartitions) {
			time.Sleep(20 * time.Millisecond)
		}
		said := s.trouble(what, p, round, rnd)
		gap := goesOn(said)
		gaps = append(gaps, gap)
		if s.rampPrimary(round%rampPartitions) != p {
			changes++
		}
		t.Logf("%3d  %s: the next transaction took %v", round, said, gap.Round(time.Millisecond))
		require.False(t, t.Failed(), s.String())
	}
	w.end()
	s.rampLevel(true)
	d, err := ramp.Dial(t.Context(), []string{"shm:" + filepath.Join(s.dir("a"), "node.sock")}, rampOptions())
	require.NoError(t, err)
	defer d.Close()
	for range 3 { // by messages, and by Reads
		w.read(d, rand.Perm(rampKeys))
	}
	slices.Sort(gaps)
	t.Logf("%s, %s: %d rounds, %d transactions written, %d read, %d of unknown outcome, %d refused, %d changes of the primary; none in part, none lost; the next transaction: median %v, longest %v; the slowest call took %v",
		mode, what, rounds, w.puts.Load(), w.gets.Load(), w.unknown.Load(), w.refused.Load(), changes, gaps[len(gaps)/2], gaps[len(gaps)-1], time.Duration(w.slowest.Load()))
}
