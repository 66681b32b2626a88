package membership

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/circle"
)

var growthPlot = flag.String("growth.plot", "", "file for the plot of what clusters of 1 to 64 nodes can do")

// Time that a shard's thread needs for a request, in microseconds: from BenchmarkReplicatedInsert of package shard,
// relaxed, with keys of 16 and values of 32 bytes.
var (
	serviceGet    = 0.83
	serviceInsert = []float64{5.3, 6.1, 7.2} // by number of secondaries
	serviceMerge  = 5.7
)

const (
	growthShards     = 256
	growthProcessors = 4 // processors of a node
	growthReplicas   = 3
)

// A workload says what clients request, and which share of it each shard gets.
type workload struct {
	name    string
	inserts float64 // the other requests are GETs by message
	shares  []float64
}

// growthKeys is the number of keys. It is lower if nothing is plotted.
func growthKeys() int {
	if *growthPlot == "" {
		return 500_000
	}
	return 10_000_000
}

// shares returns each shard's share of the requests, for keys drawn uniformly or by Zipf's law (0.99).
func shares(zipf bool) []float64 {
	keys, draws := growthKeys(), growthKeys()/5
	ids := make([]uint32, growthShards)
	for i := range ids {
		ids[i] = uint32(i)
	}
	c := circle.New(1, ids)
	list := make([]float64, growthShards)
	add := func(key uint64, share float64) {
		owner, _ := c.Owner(circle.Hash(1, binary.LittleEndian.AppendUint64(nil, key)))
		list[owner] += share
	}
	if !zipf {
		rnd := rand.New(rand.NewPCG(1, 1))
		for range draws {
			add(rnd.Uint64(), 1/float64(draws))
		}
		return list
	}
	sum := 0.0
	for k := 1; k <= keys; k++ {
		sum += math.Pow(float64(k), -0.99)
	}
	for k := 1; k <= keys; k++ {
		add(uint64(k), math.Pow(float64(k), -0.99)/sum)
	}
	return list
}

// capacity returns how many million requests per second the nodes can serve, limited by the busiest node or by the
// thread of the busiest shard, and which of these is the limit.
func capacity(m *Node, nodes []string, w *workload) (most float64, limit string) {
	k := &knowledge{nodes: map[string]nodeEntry{}, drained: map[string]bool{}}
	for _, name := range nodes {
		k.nodes[name] = nodeEntry{Member: name}
	}
	m.knows.Store(k)
	demand := map[string]float64{} // microseconds per request to the cluster
	busiest := 0.0
	for number, share := range w.shares {
		set := m.ranked(uint32(number))
		set = set[:min(len(set), growthReplicas)]
		primary := share * ((1-w.inserts)*serviceGet + w.inserts*serviceInsert[len(set)-1])
		demand[set[0]] += primary
		busiest = max(busiest, primary)
		for _, name := range set[1:] {
			demand[name] += share * w.inserts * serviceMerge
		}
	}
	node := 0.0
	for _, d := range demand {
		node = max(node, d/growthProcessors)
	}
	if busiest > node {
		return 1 / busiest, "the busiest shard's thread"
	}
	return 1 / node, "the busiest node"
}

// TestGrowth computes what clusters of 1 to 64 nodes can serve, from measured times of a shard's thread and from the
// assignment of shards to nodes, and what is left when one node or a tenth of the nodes have failed and the others
// have taken over. It does not include the network.
func TestGrowth(t *testing.T) {
	m := &Node{config: Config{Replicas: growthReplicas}}
	uniform, zipf := shares(false), shares(true)
	loads := []workload{
		{"INSERT, uniform", 1, uniform}, {"INSERT, zipf", 1, zipf}, {"95 % GET, uniform", 0.05, uniform}, {"95 % GET, zipf", 0.05, zipf},
	}
	sizes := []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}
	lines := map[string][]float64{}
	for i := range loads {
		w := &loads[i]
		for _, n := range sizes {
			var nodes []string
			for k := range n {
				nodes = append(nodes, fmt.Sprintf("node-%d", k))
			}
			all, limit := capacity(m, nodes, w)
			lines[w.name] = append(lines[w.name], all)
			said := fmt.Sprintf("%-18s %2d nodes: %6.2f million a second, by %s", w.name, n, all, limit)
			for _, failed := range slices.Compact([]int{1, n / 10}) {
				if failed == 0 || n < 4 {
					continue
				}
				left, _ := capacity(m, nodes[failed:], w)
				said += fmt.Sprintf("; without %d: %.2f", failed, left)
			}
			t.Log(said)
		}
	}
	for name, line := range lines {
		if strings.HasSuffix(name, "uniform") {
			assert.Greater(t, line[len(line)-1], 8*line[2], "%s: 64 nodes do more than 3", name)
		}
		assert.True(t, slices.IsSorted(line[2:]) || strings.HasSuffix(name, "zipf"), "%s: more nodes do less: %v", name, line)
	}
	if *growthPlot != "" {
		require.NoError(t, os.WriteFile(*growthPlot, plotGrowth(sizes, loads, lines), 0o644))
	}
}

// plotGrowth plots millions of requests per second against the number of nodes, both axes in powers of two.
func plotGrowth(sizes []int, loads []workload, lines map[string][]float64) []byte {
	const left, top, width, height, least, most = 50.0, 30.0, 420.0, 300.0, 0.125, 256.0
	colours := []string{"#2a78b5", "#3aa655", "#d1662f", "#8e5bb5"}
	x := func(n int) float64 { return left + width*math.Log2(float64(n))/6 }
	y := func(v float64) float64 { return top + height*(1-math.Log2(v/least)/math.Log2(most/least)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="white"/><text x="8" y="16" font-size="13">million requests a second by nodes, computed</text>`+"\n", left+width+150, top+height+30)
	for v := least; v <= most; v *= 2 {
		fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%g</text>`+"\n", left, left+width, y(v), y(v), left-4, y(v)+4, v)
	}
	for n := 1; n <= 64; n *= 2 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" text-anchor="middle">%d</text>`+"\n", x(n), top+height+16, n)
	}
	for i, w := range loads {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colours[i])
		for k, v := range lines[w.name] {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(sizes[k]), y(v))
		}
		at := y(lines[w.name][len(sizes)-1])
		fmt.Fprintf(&b, `"/><text x="%.0f" y="%.1f" fill="%s">%s</text>`+"\n", left+width+6, at+4, colours[i], w.name)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
