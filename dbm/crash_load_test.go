package dbm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// crashPath is the name of the database in each file system of a crash test.
const crashPath = "db"

// A load describes what the transactions of a crash test write. It is drawn once per seed and shared by all runs
// with the seed.
type load struct {
	segmentPages uint32
	keys         int // number of possible keys
	style        int // form of the keys
	longEvery    int // one in longEvery keys is too long for a leaf; 0 = none
	ops          int // most ops of a transaction
	deletes      int // how many of 100 ops are deletes
	big          int // length of the largest values, of which there are few
	bigShare     int // how many of 1,000 values may have that length
	middle       int // how many of 100 values may have a page or two
	even         int // length of most values, so that leaves change without splits or merges; 0 = all lengths
	memoryLimit  int64
	redoLimit    int64
	stepPages    int
	maxFile      int64    // largest size of the file; 0 = no limit
	steps        int      // steps of the main script
	preload      int      // transactions before it
	durability   int      // 0 to 2: of all opens; 3: drawn for each open
	rewrites     bool     // transactions overwrite their own records after these have left memory
	holds        int      // most snapshots held at once, each for long; 0: three, not for long
	made         []string // keys
}

func drawLoad(rng *rand.Rand) *load {
	segments := []uint32{8, 8, 16, 32, 64}
	l := &load{
		segmentPages: segments[rng.IntN(len(segments))],
		keys:         4 + rng.IntN(1<<(3+rng.IntN(6))),
		style:        rng.IntN(4),
		ops:          1 + rng.IntN(1<<rng.IntN(7)),
		deletes:      5 + rng.IntN(50),
		bigShare:     rng.IntN(30),
		middle:       rng.IntN(30),
		memoryLimit:  int64(1) << (16 + rng.IntN(7)),
		redoLimit:    int64(1) << (14 + rng.IntN(6)),
		stepPages:    1 + rng.IntN(1<<rng.IntN(5)),
		durability:   rng.IntN(4),
		steps:        40 << rng.IntN(5),
		preload:      rng.IntN(30) * rng.IntN(2),
	}
	l.big = int(l.segmentPages) * logstore.PageSize * (1 + rng.IntN(3)) / (1 + rng.IntN(2))
	if rng.IntN(12) == 0 {
		l.big, l.bigShare = 3<<20, 3
	}
	if rng.IntN(3) == 0 {
		l.longEvery = 3 + rng.IntN(20)
	}
	switch kind := rng.IntN(8); kind {
	case 0, 1, 2: // a tree of some height that changes in few places at a time
		l.keys, l.style, l.longEvery = 100+rng.IntN(400<<(rng.IntN(8)/6)), 1+rng.IntN(2), 0
		l.preload, l.ops, l.deletes, l.middle = 12, 40, 20, 5
		l.redoLimit = int64(1) << (15 + rng.IntN(4))
		if kind == 0 { // three levels
			l.keys, l.style, l.ops, l.preload = 1200, 2, 150, 20
		}
	case 3: // a small file whose segments are reused before anything is synced, with checkpoints only when room is needed
		l.segmentPages, l.keys, l.style, l.longEvery = 8, 20+rng.IntN(40), 3, 0
		l.big, l.bigShare, l.middle, l.deletes = 30<<10, rng.IntN(60), rng.IntN(10), 20
		l.durability, l.redoLimit, l.preload = 1+rng.IntN(2), 1<<20, 0
		l.maxFile = int64(l.segmentPages) * logstore.PageSize * (7 + rng.Int64N(8))
		return l
	}
	if rng.IntN(3) == 0 {
		l.maxFile = int64(l.segmentPages) * logstore.PageSize * (6 + rng.Int64N(60))
	}
	// These are drawn from a separate source, so that other scripts stay as they were.
	dice := rand.New(rand.NewPCG(uint64(l.keys), uint64(l.redoLimit)))
	if dice.IntN(3) == 0 { // many leaves keep the same keys: most flushes leave some leaves behind
		l.keys, l.even, l.deletes = 60+dice.IntN(300), 200+dice.IntN(800), dice.IntN(4)
		l.ops, l.middle, l.bigShare = 1+dice.IntN(10), 0, dice.IntN(8)
		l.preload, l.redoLimit, l.memoryLimit = 4, int64(1)<<(15+dice.IntN(3)), 4<<20
		l.steps = min(l.steps, 320)
	}
	return l
}

// String describes the load without its keys.
func (l *load) String() string {
	l = &[]load{*l}[0]
	l.made = nil
	type plain load
	return fmt.Sprintf("%+v", *(*plain)(l))
}

// options draws the options of one open.
func (l *load) options(rng *rand.Rand) mvcc.Options {
	o := (&Options{}).engine()
	o.Manual, o.LastSlots = true, 1<<8
	o.MemoryLimit, o.RedoLimit, o.StepPages = l.memoryLimit, l.redoLimit, l.stepPages
	o.Store.SegmentPages, o.Store.MaxFileSize = l.segmentPages, l.maxFile
	o.Store.ChunkPages = uint64(l.segmentPages) << rng.IntN(3)
	if rng.IntN(2) == 0 {
		o.RedoBehind = 1 + rng.IntN(4)
	}
	d := l.durability
	if d == 3 {
		d = rng.IntN(3)
	}
	o.Durability = mvcc.Durability(d)
	// These are drawn from a separate source, so that scripts stay as they were.
	dice := rand.New(rand.NewPCG(uint64(l.keys), uint64(d)<<32|o.Store.ChunkPages))
	if dice.IntN(2) == 0 { // what is redone and what is large is written before its batch is complete
		o.Shares.Batch = int64(1+dice.IntN(8)) << 12
	}
	if dice.IntN(2) == 0 { // write sets leave memory
		o.Shares.WriteSets = int64(1+dice.IntN(8)) * int64(l.segmentPages) * logstore.PageSize / 32
	}
	if l.rewrites {
		o.Shares.WriteSets = 4 << 10
	}
	if dice.IntN(3) > 0 { // flushes leave leaves behind
		o.PartBytes = int64(1+dice.IntN(4)) << 12
	}
	if dice.IntN(2) == 0 { // merges run aside
		o.BackgroundOps = 2 + dice.IntN(30)
		if dice.IntN(4) > 0 { // small commits are left to such merges even in modes that sync them
			o.BackgroundOps, o.DeferOps = 2+dice.IntN(6), 1+dice.IntN(2)
		}
	}
	if dice.IntN(2) == 0 { // scans cause values to be moved
		o.ScanOften = 1
	}
	if dice.IntN(4) > 0 { // ranges are cut
		o.CutFrom = 3 + dice.Int64N(30)
	}
	o.SyncBeside = dice.IntN(2) == 0
	if dice.IntN(3) > 0 { // flushes leave out what the tree lacks, if merges run in the background
		o.Lag = 1 << 20
	}
	return o
}

// key returns the key with the given number.
func (l *load) key(n int) string {
	for len(l.made) <= n {
		l.made = append(l.made, l.makeKey(len(l.made)))
	}
	return l.made[n]
}

func (l *load) makeKey(n int) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n)*0x9E3779B97F4A7C15)
	if l.longEvery > 0 && n%l.longEvery == 0 {
		size := 1001 + int(binary.BigEndian.Uint32(b[:]))%3000
		if n%(5*l.longEvery) == 0 {
			size = min(64<<10, int(l.segmentPages-5)*logstore.PageSize) // so that its run fits in a segment
		}
		return string(append(bytes.Repeat([]byte{'l'}, size-8), b[:]...))
	}
	switch l.style {
	case 0:
		return string(b[:1+n%8]) + string(rune('a'+n%26)) + string(b[:4])
	case 1: // one long common prefix
		return string(append(bytes.Repeat([]byte{'p'}, 700), b[:3]...))
	case 2: // separators have hundreds of bytes
		return string(b[7:]) + string(append(bytes.Repeat([]byte{'s'}, 460), byte(n>>8), byte(n)))
	case 4: // most separators have hundreds of bytes, and inner nodes have few children
		return fmt.Sprintf("%04d%0480d", n/4, n%4)
	}
	return string(b[:3])
}

// op is one write of a transaction. A nil value deletes the key.
type op struct{ key, value []byte }

// draw returns the ops of a transaction.
func (l *load) draw(rng *rand.Rand, mem *vfs.Mem) []op {
	ops := make([]op, 1+rng.IntN(1+rng.IntN(l.ops)))
	from, span := 0, l.keys
	if rng.IntN(4) == 0 { // neighboring keys
		span = min(l.keys, 2*len(ops))
		from = rng.IntN(l.keys - span + 1)
	}
	for i := range ops {
		ops[i].key = []byte(l.key(from + rng.IntN(span)))
		if rng.IntN(100) >= l.deletes {
			ops[i].value = l.value(rng, mem)
		}
	}
	return ops
}

// drawAll returns ops that put every key.
func (l *load) drawAll(rng *rand.Rand) []op {
	ops := make([]op, l.keys)
	for i := range ops {
		ops[i] = op{[]byte(l.key(i)), randomBytes(rng, l.even)}
	}
	return ops
}

// drawClearing returns ops that delete the given number of neighboring keys.
func (l *load) drawClearing(rng *rand.Rand, n int) []op {
	from := rng.IntN(l.keys - n + 1)
	ops := make([]op, n)
	for i := range ops {
		ops[i].key = []byte(l.key(from + i))
	}
	return ops
}

// between returns the range from the lesser of two keys to the greater one, or to the end if they are equal, and
// ops that delete all keys in the range.
func (l *load) between(a, b []byte) (from, to []byte, ops []op) {
	switch bytes.Compare(a, b) {
	case -1:
		from, to = a, b
	case 0:
		from = a
	case 1:
		from, to = b, a
	}
	for i := range l.keys {
		if key := []byte(l.key(i)); bytes.Compare(key, from) >= 0 && (to == nil || bytes.Compare(key, to) < 0) {
			ops = append(ops, op{key: key})
		}
	}
	return from, to, ops
}

func (l *load) value(rng *rand.Rand, mem *vfs.Mem) []byte {
	var n int
	switch x := rng.IntN(1000); {
	case x < l.bigShare:
		n = rng.IntN(l.big)
		if rng.IntN(6) == 0 {
			return copyOfPages(rng, mem, n)
		}
	case x < l.bigShare+10*l.middle:
		n = rng.IntN(9000)
	case l.even > 0:
		n = l.even
	case rng.IntN(8) == 0:
		n = 0
	default:
		n = rng.IntN(80)
	}
	return randomBytes(rng, n)
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b[:n:n]
}

// copyOfPages returns a value whose raw pages, in a run without a long key, look like pages of the file.
func copyOfPages(rng *rand.Rand, mem *vfs.Mem, n int) []byte {
	const runFirstBytes = logstore.BodySize - 16
	v := make([]byte, runFirstBytes+n&^(logstore.PageSize-1))
	f, err := mem.Open(crashPath, os.O_RDONLY, 0)
	if err != nil {
		return v
	}
	defer f.Close()
	size, _ := f.Size()
	for at := runFirstBytes; at < len(v); at += logstore.PageSize {
		page := rng.Int64N(size/logstore.PageSize + 1)
		f.ReadAt(v[at:at+logstore.PageSize], page*logstore.PageSize)
	}
	return v
}

// effect returns the combined changes of ops, in the form that a history needs.
func effect(ops []op) map[string][]byte {
	m := make(map[string][]byte, len(ops))
	for _, o := range ops {
		m[string(o.key)] = o.value
	}
	return m
}
