package ramp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A checker checks what transactions have seen. Every value names the transaction that wrote it, and so the other
// keys and values of that transaction. The checker finds
//
//	fractured reads    a version of a transaction, and an older version of another key that the transaction wrote
//	lost writes        an older version than one that was acknowledged before the read began
//	hidden writes      a write that is older than a write of the same key that was acknowledged before it began
//	repeated writes    a transaction with two timestamps, or two transactions with one timestamp for the same key
//	failed writes      a transaction that was seen, although its client was told that nothing was written
//	other values       a value that no transaction has written, or a part of a value
type checker struct {
	m      *simulation
	puts   []*simPut
	acked  map[string]Timestamp // by key: the newest acknowledged version
	writer map[string]*simPut   // by key and timestamp
	lost   int                  // number of crashes that may have lost acknowledged writes
}

type simPut struct {
	number int
	keys   [][]byte
	remove []bool
	size   int
	ts     Timestamp // from the acknowledgement, or from a read that has seen it
	failed error     // the error that told the client that nothing was written
	after  map[string]Timestamp
}

type simGet struct {
	keys  [][]byte
	least []Timestamp
	lost  int // checker.lost when the read began
}

func (c *checker) init(m *simulation) {
	c.m, c.acked, c.writer = m, map[string]Timestamp{}, map[string]*simPut{}
}

// forget is called when acknowledged writes may be lost: at a crash in async mode.
func (c *checker) forget() {
	clear(c.acked)
	clear(c.writer)
	c.lost++
	for _, p := range c.puts {
		p.after = nil
	}
}

func (x *simPut) String() string { return fmt.Sprintf("%d %q %v", x.number, x.keys, x.remove) }

func (c *checker) newPut(keys [][]byte) *simPut {
	x := &simPut{number: len(c.puts), keys: keys, after: map[string]Timestamp{}}
	x.size = c.m.rand(60)
	switch {
	case c.m.small && c.m.rand(2) == 0: // large values, so that memory does not hold all keys
		x.size = c.m.rand(8000)
	case c.m.rand(10) == 0:
		x.size = c.m.rand(3000)
	}
	for _, k := range keys {
		x.remove = append(x.remove, c.m.rand(6) == 0)
		x.after[string(k)] = c.acked[string(k)]
	}
	c.puts = append(c.puts, x)
	return x
}

func (x *simPut) pairs() (list []Pair) {
	for i, k := range x.keys {
		list = append(list, Pair{Key: k, Value: x.value(k), Remove: x.remove[i]})
	}
	return list
}

func (x *simPut) value(key []byte) []byte {
	return []byte(fmt.Sprintf("%d %s %s", x.number, key, strings.Repeat(string(rune('a'+x.number%26)), x.size)))
}

// removes reports whether the transaction writes a key, and whether it removes that key.
func (x *simPut) removes(key []byte) (wrote, removed bool) {
	i := slices.IndexFunc(x.keys, func(k []byte) bool { return bytes.Equal(k, key) })
	return i >= 0, i >= 0 && x.remove[i]
}

func (c *checker) putDone(x *simPut, ts Timestamp, err error) {
	if err != nil {
		if !errors.Is(err, ErrUnknownOutcome) {
			x.failed = err
			c.failed(x)
		}
		return
	}
	c.dated(x, ts)
	for _, k := range x.keys {
		if a := x.after[string(k)]; ts <= a {
			c.m.violation("put %s has timestamp %v, which %q had exceeded (%v) before it began", x, ts, k, a)
		}
		if x.after != nil {
			c.acked[string(k)] = max(c.acked[string(k)], ts)
		}
	}
}

func (c *checker) failed(x *simPut) {
	if x.failed != nil && x.ts != 0 {
		c.m.violation("put %s was written at %v, though its client was told: %v", x, x.ts, x.failed)
	}
}

// dated notes the timestamp of a transaction, and checks that it is the only one of the transaction and of its keys.
func (c *checker) dated(x *simPut, ts Timestamp) {
	if x.ts != 0 && x.ts != ts {
		c.m.violation("put %s has timestamps %v and %v", x, x.ts, ts)
	}
	x.ts = ts
	c.failed(x)
	for _, k := range x.keys {
		at := fmt.Sprintf("%s %d", k, ts)
		if o := c.writer[at]; o != nil && o != x {
			c.m.violation("puts %s and %s have timestamp %v", x, o, ts)
		}
		c.writer[at] = x
	}
}

func (c *checker) newGet(keys [][]byte) *simGet {
	x := &simGet{keys: keys, lost: c.lost}
	for _, k := range keys {
		x.least = append(x.least, c.acked[string(k)])
	}
	return x
}

func (c *checker) getDone(x *simGet, values []Value) {
	wrote := make([]*simPut, len(values))
	for i := range values {
		v := &values[i]
		if v.Found {
			var n int
			if _, err := fmt.Sscanf(string(v.Value), "%d ", &n); err != nil || n >= len(c.puts) || !bytes.Equal(v.Value, c.puts[n].value(x.keys[i])) {
				c.m.violation("%q has the value %.80q, which nobody wrote", x.keys[i], v.Value)
				return
			}
			wrote[i] = c.puts[n]
			c.dated(wrote[i], v.TS)
		}
	}
	for i := range values {
		if v := &values[i]; x.lost == c.lost && v.TS < x.least[i] && !(v.TS == 0 && c.removed(x.keys[i], x.least[i])) {
			c.m.violation("%q has version %v, after version %v was acknowledged", x.keys[i], v.TS, x.least[i])
		}
		for j := range values {
			p := wrote[j]
			if p == nil && values[j].TS != 0 {
				p = c.writer[fmt.Sprintf("%s %d", x.keys[j], values[j].TS)]
			}
			if p == nil || values[i].TS >= values[j].TS {
				continue
			}
			if w, r := p.removes(x.keys[i]); w && !(values[i].TS == 0 && (r || c.removed(x.keys[i], values[j].TS))) {
				c.m.violation("fractured: %q has version %v, of put %s; %q has version %v", x.keys[j], values[j].TS, p, x.keys[i], values[i].TS)
			}
		}
	}
}

// removed reports whether a transaction that may have happened removes the key at the timestamp or after it. If so,
// the partition may have forgotten the version.
func (c *checker) removed(key []byte, ts Timestamp) bool {
	return slices.ContainsFunc(c.puts, func(p *simPut) bool {
		_, r := p.removes(key)
		return r && (p.ts == 0 || p.ts >= ts)
	})
}
