package dbm

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sort"
)

// A history is the model of a database: its records after each commit. State i is the state after i commits; state
// 0 is empty.
//
// States are identified by their fingerprints. The newest one is stored completely. Older ones are computed from it
// by undoing commits.
type history struct {
	tip    map[string][]byte
	states []fingerprint
	undo   [][]change // undo[i] turns state i+1 into state i
}

// change is the effect of a commit on a key. A nil value means that the key is absent.
type change struct {
	key           string
	before, after []byte
}

// fingerprint identifies a set of records. Two different sets have the same one with a probability of 1 in 2^64.
type fingerprint struct {
	sum     uint64 // sum of the hashes of all records
	records int
}

var hashSeed = maphash.MakeSeed()

func (f *fingerprint) add(key, value []byte) {
	f.sum += hashRecord(key, value)
	f.records++
}

func (f *fingerprint) remove(key, value []byte) {
	f.sum -= hashRecord(key, value)
	f.records--
}

func hashRecord(key, value []byte) uint64 {
	h := maphash.Bytes(hashSeed, key)*0x9E3779B97F4A7C15 ^ maphash.Bytes(hashSeed, value)
	return h * 0xBF58476D1CE4E5B9
}

func newHistory() *history {
	return &history{tip: map[string][]byte{}, states: make([]fingerprint, 1)}
}

// last returns the number of the newest state.
func (h *history) last() int { return len(h.states) - 1 }

// commit appends a state. A nil value deletes the key.
func (h *history) commit(writes map[string][]byte) {
	f := h.states[h.last()]
	var undo []change
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		c := change{key: key, after: writes[key]}
		var there bool
		if c.before, there = h.tip[key]; there {
			f.remove([]byte(key), c.before)
		}
		if c.after == nil {
			delete(h.tip, key)
		} else {
			h.tip[key] = c.after
			f.add([]byte(key), c.after)
		}
		undo = append(undo, c)
	}
	h.states, h.undo = append(h.states, f), append(h.undo, undo)
}

// rewind makes state i the newest one.
func (h *history) rewind(i int) {
	for h.last() > i {
		n := h.last() - 1
		undoChanges(h.tip, h.undo[n])
		h.states, h.undo = h.states[:n+1], h.undo[:n]
	}
}

func undoChanges(tip map[string][]byte, undo []change) {
	for _, c := range slices.Backward(undo) {
		if c.before == nil {
			delete(tip, c.key)
		} else {
			tip[c.key] = c.before
		}
	}
}

// fork returns an independent history that shares the values of h.
func (h *history) fork() *history {
	return &history{tip: maps.Clone(h.tip), states: slices.Clone(h.states), undo: slices.Clone(h.undo)}
}

// state computes state i.
func (h *history) state(i int) map[string][]byte {
	m := maps.Clone(h.tip)
	for n := h.last(); n > i; n-- {
		undoChanges(m, h.undo[n-1])
	}
	return m
}

// find returns the newest state from least to most with the given fingerprint, or -1 if there is none.
func (h *history) find(f fingerprint, least, most int) int {
	for i := min(most, h.last()); i >= least; i-- {
		if h.states[i] == f {
			return i
		}
	}
	return -1
}

// explain describes how the records found differ from the possible states.
func (h *history) explain(found map[string][]byte, f fingerprint, least, most int) string {
	if i := h.find(f, 0, h.last()); i >= 0 {
		return fmt.Sprintf("state %d where one of %d to %d belongs", i, least, most)
	}
	best, text := -1, ""
	for i := least; i <= most; i++ {
		if d := difference(found, h.state(i)); best < 0 || len(d) < best {
			best = len(d)
			text = fmt.Sprintf("no state of %d to %d; nearest is %d, with %d differences:", least, most, i, len(d))
			for _, line := range d[:min(len(d), 8)] {
				text += "\n\t" + line
			}
		}
	}
	return text
}

func difference(got, want map[string][]byte) (lines []string) {
	for k, v := range got {
		if w, ok := want[k]; !ok {
			lines = append(lines, fmt.Sprintf("%.40q: %s, want none", k, brief(v)))
		} else if !bytes.Equal(v, w) {
			lines = append(lines, fmt.Sprintf("%.40q: %s, want %s", k, brief(v), brief(w)))
		}
	}
	for k, w := range want {
		if _, ok := got[k]; !ok {
			lines = append(lines, fmt.Sprintf("%.40q: none, want %s", k, brief(w)))
		}
	}
	sort.Strings(lines)
	return lines
}

func brief(v []byte) string { return fmt.Sprintf("%d bytes %.8x", len(v), v[:min(len(v), 8)]) }
