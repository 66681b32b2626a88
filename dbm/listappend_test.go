package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test of isolation from outside: transactions append unique elements to lists and read lists. What they have seen gives the order
// of the versions of each list, and so which transaction depends on which:
//
//	ww  it appended behind what the other one had appended
//	wr  it has read what the other one had appended
//	rt  it began after the other one had returned
//	rw  it has appended behind what the other one had read
//
// A history is strictly serializable only if all these together have no cycle. Under strict snapshot isolation no cycle consists of ww,
// wr and rt with rw nowhere or never twice in a row (Cerone and Gotsman): that rules out lost updates, fractured reads and long forks,
// and leaves write skew.

// episode is one transaction.
type episode struct {
	id         int
	began      int64 // on a clock that ticks at each beginning and return
	returned   int64
	committed  bool
	reads      map[string][]string // list: elements
	appended   map[string]string   // list: element
	serialized bool
}

type edge struct {
	to int
	rw bool
}

func TestListAppend(t *testing.T) {
	for _, serializable := range []bool{false, true} {
		t.Run(fmt.Sprintf("serializable %v", serializable), func(t *testing.T) {
			allDurabilities(t, func(t *testing.T, db *DB) {
				episodes, final := runListAppend(t, db, serializable)
				edges := dependencies(t, episodes, final)
				if serializable {
					require.Nil(t, cycle(edges), "a cycle")
				}
				require.Nil(t, cycle(throughOneAntidependency(edges)), "a cycle without two rw in a row")
			})
		})
	}
}

// TestListAppendFindsSkew: the check is worth something only if it finds what snapshot isolation allows.
func TestListAppendFindsSkew(t *testing.T) {
	a := &episode{id: 0, began: 1, returned: 3, committed: true, reads: map[string][]string{"x": nil, "y": nil}, appended: map[string]string{"x": "0"}}
	b := &episode{id: 1, began: 2, returned: 4, committed: true, reads: map[string][]string{"x": nil, "y": nil}, appended: map[string]string{"y": "1"}}
	edges := dependencies(t, []*episode{a, b}, map[string][]string{"x": {"0"}, "y": {"1"}})
	require.NotNil(t, cycle(edges))
	require.Nil(t, cycle(throughOneAntidependency(edges)))
	// A long fork: two readers see two writes in opposite orders.
	w1 := &episode{id: 0, began: 1, returned: 9, committed: true, appended: map[string]string{"x": "0"}}
	w2 := &episode{id: 1, began: 2, returned: 10, committed: true, appended: map[string]string{"y": "1"}}
	r1 := &episode{id: 2, began: 3, returned: 11, committed: true, reads: map[string][]string{"x": {"0"}, "y": nil}}
	r2 := &episode{id: 3, began: 4, returned: 12, committed: true, reads: map[string][]string{"x": nil, "y": {"1"}}}
	edges = dependencies(t, []*episode{w1, w2, r1, r2}, map[string][]string{"x": {"0"}, "y": {"1"}})
	require.NotNil(t, cycle(throughOneAntidependency(edges)))
}

func runListAppend(t *testing.T, db *DB, serializable bool) ([]*episode, map[string][]string) {
	const lists, goroutines = 6, 8
	var clock atomic.Int64
	var mu sync.Mutex
	var episodes []*episode
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for i := range scaled(80) {
				element := fmt.Sprintf("%d.%d", g, i)
				ep := &episode{serialized: serializable}
				fn := func(tx *Tx) error {
					ep.reads, ep.appended = map[string][]string{}, map[string]string{}
					ep.began = clock.Add(1) // of the try that counts; the snapshot is older, by less than the transaction
					return appendAndRead(tx, ep, rng, lists, element)
				}
				began := clock.Add(1)
				var err error
				if rng.IntN(4) == 0 {
					err = db.View(fn)
				} else {
					err = db.UpdateContext(t.Context(), TxOptions{Serializable: serializable}, fn)
				}
				ep.began, ep.returned, ep.committed = began, clock.Add(1), err == nil
				if err != nil && !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
				mu.Lock()
				ep.id = len(episodes)
				episodes = append(episodes, ep)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	final := map[string][]string{}
	require.NoError(t, db.View(func(tx *Tx) error {
		for k, v := range tx.All() {
			final[string(k)] = strings.Fields(string(v))
		}
		return nil
	}))
	return episodes, final
}

// appendAndRead is the body of a transaction.
func appendAndRead(tx *Tx, ep *episode, rng *rand.Rand, lists int, element string) error {
	read := func(list string) (string, error) {
		v, err := tx.Get([]byte(list))
		if errors.Is(err, ErrNotFound) {
			err = nil
		}
		if _, mine := ep.appended[list]; !mine && err == nil {
			ep.reads[list] = strings.Fields(string(v))
		}
		return string(v), err
	}
	for range 1 + rng.IntN(3) {
		if _, err := read(fmt.Sprint("list ", rng.IntN(lists))); err != nil {
			return err
		}
	}
	for range rng.IntN(3) {
		list := fmt.Sprint("list ", rng.IntN(lists))
		if _, mine := ep.appended[list]; mine || tx.readOnly {
			continue
		}
		v, err := read(list)
		if err != nil {
			return err
		}
		ep.appended[list] = element
		if err := tx.Put([]byte(list), []byte(v+" "+element)); err != nil {
			return err
		}
	}
	return nil
}

// dependencies makes the graph, checking on the way that every read is a past of the list's final state. Nodes beyond the episodes are
// moments: a transaction leads to the moment at which it returned, moments to later ones, a moment to the transactions that began then.
func dependencies(t *testing.T, episodes []*episode, final map[string][]string) [][]edge {
	t.Helper()
	writer := map[string]int{} // list and element: who appended it
	for _, ep := range episodes {
		for list, element := range ep.appended {
			if ep.committed {
				writer[list+element] = ep.id
			}
		}
	}
	for list, elements := range final {
		for i, e := range elements {
			_, known := writer[list+e]
			require.True(t, known, "%s holds %s of a transaction that did not commit", list, e)
			require.Equal(t, i, slices.Index(elements, e), "%s was appended twice", e)
		}
	}
	var ends int64
	for _, ep := range episodes {
		ends = max(ends, ep.returned)
	}
	edges := make([][]edge, len(episodes)+int(ends)+1)
	add := func(from, to int, rw bool) {
		if from != to {
			edges[from] = append(edges[from], edge{to, rw})
		}
	}
	moment := func(at int64) int { return len(episodes) + int(at) }
	for at := range ends {
		add(moment(at), moment(at+1), false)
	}
	for _, ep := range episodes {
		if !ep.committed {
			continue
		}
		add(moment(ep.began), ep.id, false)
		add(ep.id, moment(ep.returned), false)
		for list, seen := range ep.reads {
			whole := final[list]
			require.LessOrEqual(t, len(seen), len(whole))
			require.Equal(t, whole[:len(seen)], append([]string{}, seen...), "what %d has read of %s", ep.id, list)
			if n := len(seen); n > 0 {
				add(writer[list+whole[n-1]], ep.id, false)
			}
			if n := len(seen); n < len(whole) {
				add(ep.id, writer[list+whole[n]], true)
			}
		}
		for list, element := range ep.appended {
			i := slices.Index(final[list], element)
			require.GreaterOrEqual(t, i, 0, "%s of %s was lost", element, list)
			if i > 0 {
				add(writer[list+final[list][i-1]], ep.id, false)
			}
		}
	}
	return edges
}

// throughOneAntidependency returns the graph of all paths of one edge that is not rw and then at most one that is.
func throughOneAntidependency(edges [][]edge) [][]edge {
	out := make([][]edge, len(edges))
	for from := range edges {
		for _, first := range edges[from] {
			if first.rw {
				continue
			}
			out[from] = append(out[from], first)
			for _, second := range edges[first.to] {
				if second.rw {
					out[from] = append(out[from], edge{to: second.to})
				}
			}
		}
	}
	return out
}

// cycle returns the nodes of a cycle, nil if there is none.
func cycle(edges [][]edge) []int {
	const onPath, done = 1, 2
	state := make([]byte, len(edges))
	next := make([]int, len(edges))
	for start := range edges {
		if state[start] != 0 {
			continue
		}
		path := []int{start}
		state[start] = onPath
		for len(path) > 0 {
			n := path[len(path)-1]
			if next[n] == len(edges[n]) {
				state[n] = done
				path = path[:len(path)-1]
				continue
			}
			to := edges[n][next[n]].to
			next[n]++
			switch state[to] {
			case onPath:
				return path[slices.Index(path, to):]
			case 0:
				state[to] = onPath
				path = append(path, to)
			}
		}
	}
	return nil
}
