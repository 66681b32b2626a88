package shard

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// call and result are an operation on one key, for the checker. Values are told apart by what stands before their first space.
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
	value string // what was found, "" if nothing
	open  bool   // nobody knows whether it happened
}

// keyState is the model's state: the value, and whether it may vanish by itself.
type keyState struct {
	value  string
	expiry bool
}

var model = porcupine.Model{
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
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		return input.(call).step(state.(keyState), output.(result))
	},
	Equal: func(a, b any) bool { return a == b },
}

func (c call) step(s keyState, r result) (bool, any) {
	set := keyState{c.value, c.expiry}
	// An operation that found nothing where there is a value that may expire shows that the value has expired.
	gone := func(absent bool) keyState {
		if absent && s.expiry {
			return keyState{}
		}
		return s
	}
	switch c.kind {
	case "crash":
		return true, set
	case "put":
		return true, set
	case "get":
		s = gone(r.value == "")
		return s.value == r.value, s
	case "insert", "update", "remove":
		absent := (c.kind == "insert") == r.ok
		if !r.open {
			s = gone(absent)
			if (s.value == "") != absent {
				return false, s
			}
		} else if (s.value == "") != (c.kind == "insert") {
			return true, s
		}
		switch {
		case !r.ok && !r.open:
			return true, s
		case c.kind == "remove":
			return true, keyState{}
		}
		return true, set
	case "cas", "casremove":
		if r.open {
			if s.value != c.expect {
				return true, s
			}
		} else {
			s = gone(r.ok && c.expect == "" || !r.ok && s.value == c.expect)
			if (s.value == c.expect) != r.ok {
				return false, s
			}
			if !r.ok {
				return true, s
			}
		}
		if c.kind == "casremove" {
			return true, keyState{}
		}
		return true, set
	case "add":
		n, _ := strconv.ParseInt(s.value, 10, 64)
		n += c.delta
		if s.expiry && !r.open && r.value == strconv.FormatInt(c.delta, 10) {
			n = c.delta
		}
		sum := strconv.FormatInt(n, 10)
		return r.open || r.value == sum, keyState{sum, c.expiry}
	}
	panic(c.kind)
}

// name is the part of a value that tells it apart.
func name(value []byte) string {
	n, _, _ := strings.Cut(string(value), " ")
	return n
}
