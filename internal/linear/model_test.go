package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

type kind uint8

const (
	get    kind = iota
	has         // DB.Has
	put         // DB.Put
	del         // DB.Delete
	insert      // Tx.Insert
	swap        // compare and swap; sees the value before
	extend      // read, append, put; sees the value before
	numKind
)

// call is an operation on one key. value is what it puts or appends. A swap puts it if it finds old.
type call struct {
	kind       kind
	key        int
	value, old string
}

// answer is the result of an operation: whether the key existed, its value if the operation returns it, and whether
// the operation succeeded.
type answer struct {
	there bool
	value string
	done  bool
}

// record is the state of a key.
type record struct {
	there bool
	value string
}

// model describes one key under operations that are executed one after another.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(call).key
			byKey[k] = append(byKey[k], o)
		}
		var all [][]porcupine.Operation
		for _, part := range byKey {
			all = append(all, part)
		}
		return all
	},
	Init: func() any { return record{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(record), input.(call), output.(answer))
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

// step reports whether an operation can give this answer for a key in the given state, and returns the state after
// it.
func step(s record, c call, a answer) (bool, record) {
	present := record{true, c.value}
	switch c.kind {
	case get:
		return a.there == s.there && a.value == s.value, s
	case has:
		return a.there == s.there, s
	case put:
		return true, present
	case del:
		return true, record{}
	case insert:
		if a.done != !s.there {
			return false, s
		} else if a.done {
			return true, present
		}
		return true, s
	case swap:
		if a.there != s.there || a.value != s.value || a.done != (s.there && s.value == c.old) {
			return false, s
		} else if a.done {
			return true, present
		}
		return true, s
	default:
		return a.there == s.there && a.value == s.value, record{true, s.value + c.value}
	}
}
