package shard

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// call and result are an operation on one key, for the checker. The text before the first space of a value identifies
// it.
type call struct {
	kind   string // get put insert update remove cas casremove add crash
	key    string
	value  string
	expect string // of cas: the value whose version is expected, "" for absent
	expiry bool   // the value may expire
	delta  int64
}

type result struct {
	ok    bool
	value string // the value that was found, "" if there was none
	open  bool   // it is unknown whether the operation happened
}

// keyState is the state of the model: the value, and whether it may vanish by expiry.
type keyState struct {
	value  string
	expiry bool
}

// model can be in several states at a time: it is unknown whether a value that may expire is still there, and which
// of the two an operation without an answer has found.
var model = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(call).key
			by[k] = append(by[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() []any { return []any{keyState{}} },
	Step: func(state, input, output any) (next []any) {
		before := state.(keyState)
		if s, ok := input.(call).step(before, output.(result)); ok {
			next = append(next, s)
		}
		if before.expiry {
			if s, ok := input.(call).step(keyState{}, output.(result)); ok {
				next = append(next, s)
			}
		}
		return next
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// checkTime bounds the search for an order that explains a key's history. A search that takes longer is counted as
// undecided.
const checkTime = time.Minute

// step returns the state after the operation, and whether the operation can have had its answer in the state before
// it.
func (c call) step(s keyState, r result) (after keyState, ok bool) {
	set := keyState{c.value, c.expiry}
	finds := true // the condition of the operation holds
	switch c.kind {
	case "crash", "put":
		return set, true
	case "get":
		return s, s.value == r.value
	case "add":
		n, _ := strconv.ParseInt(s.value, 10, 64)
		sum := strconv.FormatInt(n+c.delta, 10)
		return keyState{sum, c.expiry}, r.open || r.value == sum
	case "insert":
		finds = s.value == ""
	case "update", "remove":
		finds = s.value != ""
	case "cas", "casremove":
		finds = s.value == c.expect
	default:
		panic(c.kind)
	}
	switch {
	case !finds:
		return s, r.open || !r.ok
	case c.kind == "remove" || c.kind == "casremove":
		set = keyState{}
	}
	return set, r.open || r.ok
}

// name returns the part of a value that identifies it.
func name(value []byte) string {
	n, _, _ := strings.Cut(string(value), " ")
	return n
}

// TestModelOfExpiry: an operation without an answer may have found a value that could expire, or may have found that
// it had expired.
func TestModelOfExpiry(t *testing.T) {
	const ever = 1 << 62
	expires := call{kind: "put", key: "k", value: "v", expiry: true}
	for name, c := range map[string]struct {
		put, next call
		seen      string
		right     bool
	}{
		"inserted":             {expires, call{kind: "insert", value: "w"}, "w", true},
		"not inserted":         {expires, call{kind: "insert", value: "w"}, "v", true},
		"swapped with nothing": {expires, call{kind: "cas", value: "w"}, "w", true},
		"nothing is left":      {expires, call{kind: "update", value: "w"}, "", true},
		"does not expire":      {call{kind: "put", value: "v"}, call{kind: "insert", value: "w"}, "w", false},
		"is not the expected":  {expires, call{kind: "cas", value: "w", expect: "x"}, "w", false},
	} {
		c.put.key, c.next.key = "k", "k"
		history := []porcupine.Operation{
			{ClientId: 1, Input: c.put, Output: result{ok: true}, Call: 1, Return: 2},
			{ClientId: 2, Input: c.next, Output: result{open: true}, Call: 3, Return: ever},
			{ClientId: 1, Input: call{kind: "get", key: "k"}, Output: result{value: c.seen}, Call: 4, Return: 5},
		}
		assert.Equal(t, c.right, porcupine.CheckOperations(model, history), name)
	}
}
