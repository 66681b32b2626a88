package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"flashdbm/servers/fabric"
)

var le = binary.LittleEndian

// Sizes of a frame in bytes.
const (
	frameHead = 24
	frameTail = 8
	minFrame  = frameHead + frameTail
	// skipSize replaces the size of a body in a frame that says that nothing more comes before the end of the lap.
	skipSize = 1<<32 - 1
)

// frameSize returns the size of a frame with a body of n bytes.
func frameSize(n int) uint64 { return uint64(frameHead + (n+7)&^7 + frameTail) }

// A Log has the newest entries of a shard, in frames. One thread uses it.
type Log struct {
	region fabric.Region
	mem    []byte
	seq    uint64   // newest entry in the memory
	head   uint64   // position after it
	keep   uint64   // bytes from this position on must not be overwritten; ignored while free
	free   bool     // no bytes have to be kept
	first  uint64   // entry of starts[0]
	starts []uint64 // for each entry, the position at which its reader expects it. Some may be overwritten already
	terms  []Term   // of all entries
	queue  []queued // entries that wait for room
}

type queued struct {
	term uint64
	body []byte
}

// NewLog returns an empty log whose next entry is seq+1. size is in bytes, a multiple of 4096.
func NewLog(d Allocator, size int, seq uint64, terms []Term) (*Log, error) {
	r, err := d.Alloc(size, 0)
	if err != nil {
		return nil, fmt.Errorf("replica: memory of the log: %w", err)
	}
	return &Log{region: r, mem: r.Bytes(), seq: seq, first: seq + 1, free: true, terms: slices.Clone(terms)}, nil
}

// An Allocator is the part of a fabric.Domain that allocates memory.
type Allocator interface {
	Alloc(n int, a fabric.Access) (fabric.Region, error)
}

// Size returns the size of the log, and of each ring to which its entries go, in bytes.
func (l *Log) Size() int { return len(l.mem) }

// Last returns the number of the newest entry, in the memory or waiting for room.
func (l *Log) Last() uint64 { return l.seq + uint64(len(l.queue)) }

// Waits reports whether entries wait for room. The caller then makes no entries until they have it; nothing else
// bounds their number.
func (l *Log) Waits() bool { return len(l.queue) > 0 }

// Terms returns the table of terms. It is valid until the next Append.
func (l *Log) Terms() []Term { return l.terms }

// TermAt returns the term of an entry, 0 if it is not known.
func (l *Log) TermAt(seq uint64) uint64 { return termAt(l.terms, seq) }

// Fits reports whether a log of this size can hold a body of n bytes. The limit is half of the log, so that an empty
// log has room for the body at any position of its head.
func (l *Log) Fits(n int) bool { return frameSize(n) <= uint64(len(l.mem))/2 }

// Append adds an entry and returns its number. If the memory has no room, the log keeps a copy of body until there
// is room.
func (l *Log) Append(term uint64, body []byte) uint64 {
	if !l.Fits(len(body)) {
		panic(fmt.Sprintf("replica: an entry of %d bytes in a log of %d", len(body), len(l.mem)))
	}
	l.terms = noteTerm(l.terms, term, l.Last()+1)
	if len(l.queue) > 0 || !l.put(term, body) {
		l.queue = append(l.queue, queued{term, bytes.Clone(body)})
	}
	return l.Last()
}

// put makes a frame if there is room.
func (l *Log) put(term uint64, body []byte) bool {
	size, lap := frameSize(len(body)), uint64(len(l.mem))
	rest := lap - l.head%lap
	skip := uint64(0)
	if rest < size {
		skip = rest
	}
	if !l.free && l.head+skip+size-l.keep > lap {
		return false
	}
	l.seq++
	l.starts = append(l.starts, l.head)
	if skip >= minFrame {
		seal(l.mem[l.head%lap:], skipSize, l.seq, term, nil)
	}
	l.head += skip
	seal(l.mem[l.head%lap:], uint32(len(body)), l.seq, term, body)
	l.head += size
	n := 0
	for l.starts[n]+lap < l.head {
		n++
	}
	if n > 0 && (n == len(l.starts) || n > len(l.starts)/2) { // done only occasionally, because an entry's position shows whether it was overwritten
		l.starts = slices.Clone(l.starts[n:])
		l.first += uint64(n)
	}
	return true
}

func seal(b []byte, size uint32, seq, term uint64, body []byte) {
	end := frameHead
	if size != skipSize {
		end += (len(body) + 7) &^ 7
	}
	le.PutUint32(b, size)
	le.PutUint32(b[4:], 0)
	le.PutUint64(b[8:], seq)
	le.PutUint64(b[16:], term)
	clear(b[frameHead+copy(b[frameHead:end], body) : end])
	le.PutUint64(b[end:], xxh3.HashSeed(b[:end], seq))
}

// Keep sets the position from which on the memory is needed, and gives waiting entries the room before it.
func (l *Log) Keep(position uint64) {
	l.keep, l.free = position, false
	l.flush()
}

// Free says that no memory is needed.
func (l *Log) Free() {
	l.free = true
	l.flush()
}

func (l *Log) flush() {
	for len(l.queue) > 0 && l.put(l.queue[0].term, l.queue[0].body) {
		l.queue[0] = queued{}
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue = nil
	}
}

// start returns the position at which a reader that has all entries up to seq continues. ok is false if the memory
// lacks the next entry.
func (l *Log) start(seq uint64) (position uint64, ok bool) {
	switch {
	case seq == l.seq:
		return l.head, true
	case seq > l.seq || seq+1 < l.first:
		return 0, false
	}
	position = l.starts[seq+1-l.first]
	return position, l.head-position <= uint64(len(l.mem))
}

// Close frees the memory.
func (l *Log) Close() error { return l.region.Close() }

// forget empties the log. Its next entry is seq+1.
func (l *Log) forget(seq uint64, terms []Term) {
	l.seq, l.first, l.starts, l.queue = seq, seq+1, nil, nil
	l.terms, l.free = slices.Clone(terms), true
}
