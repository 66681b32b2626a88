package dbm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// This tests isolation from outside. Transactions append unique elements to lists and read lists. What they have
// read determines the order of the versions of each list, and so how transactions depend on each other:
//
//	ww  it appended after what the other one had appended
//	wr  it read what the other one had appended
//	rt  it began after the other one had returned
//	rw  it appended after what the other one had read
//
// A history is strictly serializable only if these dependencies have no cycle. Under strict snapshot isolation,
// there is no cycle of ww, wr and rt in which rw occurs nowhere or never twice in succession (Cerone and Gotsman).
// That excludes lost updates, fractured reads and long forks, and allows write skew.

// episode is one transaction.
type episode struct {
	id         int
	began      int64 // on a clock that advances with each beginning and return
	returned   int64
	committed  bool
	reads      map[string][]element // list: elements
	appended   map[string]element   // list: element
	serialized bool
}

// element is a number that is appended to a list by exactly one transaction. The database stores it as text.
type element uint32

type edge struct {
	to int
	rw bool
}

// listRuns histories of listSize transactions each are run for each durability and isolation level, beginning with
// the seed listFrom.
var (
	listRuns = flag.Int("list.runs", 1, "histories of each kind")
	listSize = flag.Int("list.transactions", 1600, "transactions of a history")
	listFrom = flag.Uint64("list.from", 1, "seed of the first history")
)

func TestListAppend(t *testing.T) {
	for run := range *listRuns {
		for _, serializable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d serializable %v", *listFrom+uint64(run), serializable), func(t *testing.T) {
				allDurabilities(t, func(t *testing.T, db *DB) {
					episodes, final := runListAppend(t, db, serializable, *listFrom+uint64(run))
					edges := dependencies(t, episodes, final)
					if serializable {
						require.Nil(t, cycle(edges), "a cycle")
					}
					require.Nil(t, cycle(throughOneAntidependency(edges)), "a cycle without two rw in a row")
				})
			})
		}
	}
}

// TestListAppendFindsSkew: the check is useful only if it finds what snapshot isolation allows.
func TestListAppendFindsSkew(t *testing.T) {
	a := &episode{id: 0, began: 1, returned: 3, committed: true, reads: map[string][]element{"x": nil, "y": nil}, appended: map[string]element{"x": 1}}
	b := &episode{id: 1, began: 2, returned: 4, committed: true, reads: map[string][]element{"x": nil, "y": nil}, appended: map[string]element{"y": 2}}
	edges := dependencies(t, []*episode{a, b}, map[string][]element{"x": {1}, "y": {2}})
	require.NotNil(t, cycle(edges))
	require.Nil(t, cycle(throughOneAntidependency(edges)))
	// A long fork: two readers see two writes in opposite orders.
	w1 := &episode{id: 0, began: 1, returned: 9, committed: true, appended: map[string]element{"x": 1}}
	w2 := &episode{id: 1, began: 2, returned: 10, committed: true, appended: map[string]element{"y": 2}}
	r1 := &episode{id: 2, began: 3, returned: 11, committed: true, reads: map[string][]element{"x": {1}, "y": nil}}
	r2 := &episode{id: 3, began: 4, returned: 12, committed: true, reads: map[string][]element{"x": nil, "y": {2}}}
	edges = dependencies(t, []*episode{w1, w2, r1, r2}, map[string][]element{"x": {1}, "y": {2}})
	require.NotNil(t, cycle(throughOneAntidependency(edges)))
}

// A list is either one record whose value grows, or many records that each have one element and a successive number
// in their key. The latter is read as a range, and two transactions that append at the same place write the same
// key.
const (
	valueLists = 4
	rowLists   = 4
	hotShare   = 3 // one in hotShare uses the first list of its kind
)

func drawList(rng *rand.Rand) string {
	kind, n := "value", valueLists
	if rng.IntN(2) == 0 {
		kind, n = "rows", rowLists
	}
	if rng.IntN(hotShare) == 0 {
		n = 1
	}
	return fmt.Sprint(kind, rng.IntN(n))
}

func isRows(list string) bool { return list[0] == 'r' }

func rowKey(list string, n int) []byte { return fmt.Appendf(nil, "%s/%06d", list, n) }

// nextRow changes the key of a row to that of the next one without formatting, as most of the time of a history is
// spent comparing keys.
func nextRow(key []byte) {
	for i := len(key) - 1; ; i-- {
		if key[i]++; key[i] <= '9' {
			return
		}
		key[i] = '0'
	}
}

func parseElement(text []byte) (e element, err error) {
	if len(text) == 0 || len(text) > 9 {
		return 0, fmt.Errorf("an element %q", text)
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("an element %q", text)
		}
		e = e*10 + element(c-'0')
	}
	return e, nil
}

// parseElements parses elements that each end with a space.
func parseElements(text []byte) (all []element, err error) {
	for len(text) > 0 {
		n := bytes.IndexByte(text, ' ')
		if n < 0 {
			return nil, fmt.Errorf("a list that ends with %q", text)
		}
		e, err := parseElement(text[:n])
		if err != nil {
			return nil, err
		}
		all, text = append(all, e), text[n+1:]
	}
	return all, nil
}

func runListAppend(t *testing.T, db *DB, serializable bool, seed uint64) ([]*episode, map[string][]element) {
	const goroutines = 8
	var clock atomic.Int64
	var mu sync.Mutex
	var episodes []*episode
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), seed))
			for i := range scaled(*listSize / goroutines) {
				mine := element(1 + g + goroutines*i)
				ep := &episode{serialized: serializable}
				fn := func(tx *Tx) error {
					ep.reads, ep.appended = map[string][]element{}, map[string]element{}
					return appendAndRead(tx, ep, rng, mine)
				}
				ep.began = clock.Add(1) // before the first try, as the snapshot is taken later
				var err error
				if rng.IntN(4) == 0 {
					err = db.View(fn)
				} else {
					err = db.UpdateContext(t.Context(), TxOptions{Serializable: serializable}, fn)
				}
				ep.returned, ep.committed = clock.Add(1), err == nil
				if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrSnapshotTooOld) {
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
	final := map[string][]element{}
	require.NoError(t, db.View(func(tx *Tx) error {
		for i := range valueLists + rowLists {
			list := fmt.Sprint("value", i)
			if i >= valueLists {
				list = fmt.Sprint("rows", i-valueLists)
			}
			elements, err := readList(tx, list, i)
			if err != nil {
				return err
			}
			final[list] = elements
		}
		return nil
	}))
	return episodes, final
}

// readList reads a list. A list of many records is read in one of four ways.
func readList(tx *Tx, list string, way int) (elements []element, err error) {
	if !isRows(list) {
		v, err := tx.Get([]byte(list))
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return parseElements(v)
	}
	next := rowKey(list, 0)
	take := func(k, v []byte) error {
		if !bytes.Equal(k, next) {
			return fmt.Errorf("%q follows where %q belongs", k, next)
		}
		nextRow(next)
		e, err := parseElement(v)
		elements = append(elements, e)
		return err
	}
	switch way % 4 {
	case 0:
		for k, v := range tx.Prefix([]byte(list + "/")) {
			if err := take(k, v); err != nil {
				return nil, err
			}
		}
	case 1:
		for k, v := range tx.Range([]byte(list+"/"), []byte(list+"0")) {
			if err := take(k, v); err != nil {
				return nil, err
			}
		}
	case 2:
		c := tx.Cursor()
		for ok := c.Seek([]byte(list)); ok && strings.HasPrefix(string(c.Key()), list+"/"); ok = c.Next() {
			if err := take(c.Key(), c.Value()); err != nil {
				return nil, err
			}
		}
		err = c.Err()
	case 3:
		var keys, values [][]byte // valid while the transaction is open
		for k, v := range tx.Backward([]byte(list+"/"), []byte(list+"0")) {
			keys, values = append(keys, k), append(values, v)
		}
		for i := len(keys) - 1; i >= 0; i-- {
			if err := take(keys[i], values[i]); err != nil {
				return nil, err
			}
		}
	}
	return elements, errors.Join(err, tx.Err())
}

// appendAndRead is the body of a transaction.
func appendAndRead(tx *Tx, ep *episode, rng *rand.Rand, mine element) error {
	read := func(list string) ([]element, error) {
		elements, err := readList(tx, list, rng.IntN(4))
		if _, own := ep.appended[list]; !own && err == nil {
			if before, again := ep.reads[list]; again && !slices.Equal(before, elements) {
				return nil, fmt.Errorf("%s has changed within a transaction", list)
			}
			ep.reads[list] = elements
		}
		return elements, err
	}
	reads := 1 + rng.IntN(3)
	if rng.IntN(30) == 0 { // a long transaction
		reads = 20
	}
	for range reads {
		if _, err := read(drawList(rng)); err != nil {
			return err
		}
		if reads == 20 {
			runtime.Gosched()
		}
	}
	for range rng.IntN(3) {
		list := drawList(rng)
		if _, own := ep.appended[list]; own || tx.readOnly {
			continue
		}
		if !isRows(list) && rng.IntN(3) == 0 { // its only read is that of Append itself
			ep.appended[list] = mine
			if err := tx.Append([]byte(list), fmt.Appendf(nil, "%d ", mine)); err != nil {
				return err
			}
			continue
		}
		elements, err := read(list)
		if err != nil {
			return err
		}
		ep.appended[list] = mine
		if isRows(list) {
			err = appendRow(tx, rng, rowKey(list, len(elements)), fmt.Append(nil, mine))
		} else if rng.IntN(2) == 0 {
			err = tx.Append([]byte(list), fmt.Appendf(nil, "%d ", mine))
		} else if err = tx.Delete([]byte(list)); err == nil { // delete it and put it again
			var text []byte
			for _, e := range append(elements, mine) {
				text = append(strconv.AppendUint(text, uint64(e), 10), ' ')
			}
			err = tx.Put([]byte(list), text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendRow puts a row after the last one, in one of the ways to put a record that does not exist.
func appendRow(tx *Tx, rng *rand.Rand, key, value []byte) error {
	switch rng.IntN(3) {
	case 0:
		return tx.Put(key, value)
	case 1:
		old, err := tx.GetAndPut(key, value)
		if err == nil && old != nil {
			err = fmt.Errorf("%q is behind the end of its list", key)
		}
		return err
	}
	swapped, err := tx.CompareAndSwap(key, nil, value)
	if err == nil && !swapped {
		err = fmt.Errorf("%q is behind the end of its list", key)
	}
	return err
}

// dependencies builds the graph, and checks that every read saw an earlier state of the list's final state. Nodes
// beyond the episodes are moments: there is an edge from a transaction to the moment at which it returned, from
// each moment to the next, and from a moment to the transactions that began then.
func dependencies(t *testing.T, episodes []*episode, final map[string][]element) [][]edge {
	t.Helper()
	type entry struct {
		list string
		e    element
	}
	writer := map[entry]int{} // the transaction that appended it
	for _, ep := range episodes {
		for list, e := range ep.appended {
			if ep.committed {
				writer[entry{list, e}] = ep.id
			}
		}
	}
	places := map[entry]int{} // of elements in their lists
	for list, elements := range final {
		for i, e := range slices.Backward(elements) {
			places[entry{list, e}] = i
		}
		for i, e := range elements {
			_, known := writer[entry{list, e}]
			if !known || i != places[entry{list, e}] {
				t.Fatalf("%s holds %d, at %d and %d, of a transaction that did not commit or twice", list, e, places[entry{list, e}], i)
			}
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
			if !slices.Equal(whole[:len(seen)], seen) {
				t.Fatalf("what %d has read of %s is no past of it: %v", ep.id, list, seen)
			}
			if n := len(seen); n > 0 {
				add(writer[entry{list, whole[n-1]}], ep.id, false)
			}
			if n := len(seen); n < len(whole) {
				add(ep.id, writer[entry{list, whole[n]}], true)
			}
		}
		for list, e := range ep.appended {
			i, there := places[entry{list, e}]
			require.True(t, there, "%d of %s was lost", e, list)
			if i > 0 {
				add(writer[entry{list, final[list][i-1]}], ep.id, false)
			}
		}
	}
	return edges
}

// throughOneAntidependency returns the graph of all paths that consist of one edge that is not rw, followed by at
// most one that is.
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

// cycle returns the nodes of a cycle, or nil if there is none.
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
