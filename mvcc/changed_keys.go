package mvcc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
)

// changedKeys has the keys that commits have written since the first backup of this engine. With these keys an
// increment contains only the changed records. Found by the pages of the tree, it would contain all records of each
// changed leaf, which for small values changed at random are up to 36 times as many bytes, and all leaves would have
// to be read: see since.go.
//
// A mark is a group of the log, and the position of the first key that a commit after that group has written. Backups
// make marks.
//
// Invariants:
//
//  1. A batch adds its keys before transactions can see it. So since returns the keys of all commits that a transaction
//     sees which began before the call. Other changes drop all keys and marks, because their keys are too many or
//     unknown: a load, a row of a load, a heavy commit (heavy.go).
//  2. All commits before a mark are in the mark's group or in earlier ones, and that group does not grow any more. So
//     a copy that has everything up to that group lacks only commits whose keys come after the mark.
//  3. Commits may have been added to a group after a token named it; the keys after a mark of that group would not
//     include theirs. Only WriteThrough commits are added to existing groups. So in WriteThrough mode no keys are
//     kept. If Open has found redo, which WriteThrough commits may have written, the first mark is one group later
//     than the last group found. A clean Close writes later groups.
//  4. When the keys take more memory than most, the oldest are dropped, and with them the marks before them. For an
//     older token changes are found by the pages.
type changedKeys struct {
	most   int64  // bytes; no keys are kept if it is below 0
	unsure uint64 // a group that has no mark: see invariant 3
	on     bool   // there is a mark. Token held

	mu     sync.Mutex // guards the following
	chunks [][]byte   // keys, each after its length as a varint, in the order of commits
	bytes  int64      // of chunks
	begun  int        // chunks that were dropped
	marks  []keyMark  // in order
}

// keyMark is a place among the keys: at bytes into the chunk of that number, counting dropped ones.
type keyMark struct {
	group     uint64
	chunk, at int
}

const (
	// changedShare of MemoryLimit is for changed keys: by default 16 MiB, 930,000 keys of 16 bytes.
	changedShare = 16
	keyChunk     = 64 << 10
	// mostMarks bounds the marks. A standby that follows makes five a second. With half of them gone, an increment since
	// one of those has some more keys.
	mostMarks = 1 << 12
)

// KeepsChangedKeys reports whether the keys of commits after a backup are kept, as far as there is memory for them.
func KeepsChangedKeys(e *Engine) bool { return e.committer.changed.most >= 0 }

// Commits reports whether a commit is under way.
func Commits(e *Engine) bool { return e.readers.active.Load() > 0 || e.readers.places.any() }

func (k *changedKeys) init(o *Options) {
	k.most = o.Shares.Keys
	switch {
	case o.Durability == WriteThrough || o.Store.ReadOnly:
		k.most = -1
	case k.most == 0:
		k.most = o.MemoryLimit / changedShare
	}
}

// note adds the keys of a batch. Token held.
func (k *changedKeys) note(nodes []*commitNode) {
	if !k.on {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range nodes {
		for key := range n.Value.set.Keys {
			k.add(key)
		}
	}
	k.on = len(k.marks) > 0
}

func (k *changedKeys) add(key []byte) {
	need := binary.MaxVarintLen32 + len(key)
	last := len(k.chunks) - 1
	if last < 0 || cap(k.chunks[last])-len(k.chunks[last]) < need {
		size := max(keyChunk, need)
		k.chunks, k.bytes, last = append(k.chunks, make([]byte, 0, size)), k.bytes+int64(size), last+1
		for k.bytes > k.most && last > 0 {
			k.drop()
			last--
		}
	}
	k.chunks[last] = append(binary.AppendUvarint(k.chunks[last], uint64(len(key))), key...)
}

// drop drops the oldest chunk.
func (k *changedKeys) drop() {
	k.bytes -= int64(cap(k.chunks[0]))
	k.chunks, k.begun = slices.Delete(k.chunks, 0, 1), k.begun+1
	k.marks = slices.DeleteFunc(k.marks, func(m keyMark) bool { return m.chunk < k.begun })
}

// mark makes a mark for a group that does not grow any more and has, with those before it, all commits so far. Token
// held.
func (k *changedKeys) mark(group uint64) {
	if k.most < 0 {
		return
	}
	if group > 0 && group == k.unsure {
		group++
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	m := keyMark{group: group, chunk: k.begun}
	if last := len(k.chunks) - 1; last >= 0 {
		m.chunk, m.at = k.begun+last, len(k.chunks[last])
	}
	k.on = true
	if n := len(k.marks); n > 0 && k.marks[n-1].chunk == m.chunk && k.marks[n-1].at == m.at {
		return // the same keys, also since an earlier group
	}
	if k.marks = append(k.marks, m); len(k.marks) > mostMarks {
		for i := range k.marks[:mostMarks/2] {
			k.marks[i] = k.marks[2*i]
		}
		k.marks = append(k.marks[:mostMarks/2], m)
	}
}

// forget drops all keys and marks. Token held.
func (k *changedKeys) forget() {
	if !k.on {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun += len(k.chunks)
	k.on, k.chunks, k.marks, k.bytes = false, nil, nil, 0
}

// since returns the keys that a copy with everything up to a group may lack, in order, each once. ok is false if they
// are not known.
func (k *changedKeys) since(group uint64) (keys [][]byte, ok bool) {
	k.mu.Lock()
	i, _ := slices.BinarySearchFunc(k.marks, group+1, func(m keyMark, group uint64) int { return cmp.Compare(m.group, group) })
	if i == 0 {
		k.mu.Unlock()
		return nil, false
	}
	m := k.marks[i-1]
	chunks := slices.Clone(k.chunks[min(m.chunk-k.begun, len(k.chunks)):])
	k.mu.Unlock() // what is added to a chunk from now on lies after the length that it has here
	for i, c := range chunks {
		if i == 0 {
			c = c[m.at:]
		}
		for len(c) > 0 {
			length, n := binary.Uvarint(c)
			keys = append(keys, c[n:n+int(length)])
			c = c[n+int(length):]
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), true
}
