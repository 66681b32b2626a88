package hydra

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var pointerRequests = flag.Int("hydra.requests", 5000, "records, and requests for them, of TestPointerHits")

// TestPointerHits is figure 11 of the paper: one client with one cache of pointers makes as many requests as there are
// records, drawn by a Zipfian distribution. A pointer hits if the Read answers the GET. Updates invalidate pointers,
// and take the place of GETs. When the share of updates rises from none to half of the requests, the paper has 75.5 %
// fewer hits, and a simulation of its rules 74.8 %.
func TestPointerHits(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: nothing for the race detector to see")
	}
	records := *pointerRequests
	sums, sum := make([]float64, records), 0.0
	for i := range sums { // theta 0.99, as in YCSB
		sum += math.Pow(float64(i+1), -0.99)
		sums[i] = sum
	}
	hits := func(updates float64) uint64 {
		k := newCluster(t, 1, &Options{Pointers: 2 * records})
		r := rand.New(rand.NewPCG(1, 2))
		places := r.Perm(records) // of the ranks
		key := func(i int) []byte { return fmt.Appendf(nil, "%016d", i) }
		value := make([]byte, 32)
		for i := range records {
			_, err := k.c.Put(k.ctx, key(i), value)
			require.NoError(t, err)
		}
		before, began := k.c.Stats(), time.Now()
		for range records {
			rank, _ := slices.BinarySearch(sums, r.Float64()*sum)
			at := key(places[min(rank, records-1)])
			var err error
			if r.Float64() < updates {
				_, err = k.c.Put(k.ctx, at, value)
			} else {
				_, err = k.c.Get(k.ctx, at)
			}
			require.NoError(t, err)
		}
		after := k.c.Stats()
		t.Logf("%.0f %% updates: %d of %d requests are hits, %d Reads prove nothing; %v",
			100*updates, after.OneSided-before.OneSided, records, after.Refused-before.Refused, time.Since(began).Round(time.Millisecond))
		return after.OneSided - before.OneSided
	}
	none, tenth, half := hits(0), hits(0.1), hits(0.5)
	fewer := 100 * (1 - float64(half)/float64(none))
	t.Logf("from 0 to 50 %% updates: %.1f %% fewer hits", fewer)
	assert.Greater(t, none, tenth)
	assert.InDelta(t, 75, fewer, 10)
}
