package dbm

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	hostileFiles = flag.Int("hostile.files", 0, "hostile files in all, instead of as many as there is time for")
	hostileFrom  = flag.Uint64("hostile.from", 1, "first seed of hostile files")
)

// A hostile is a database that is changed where its structure is, and then sealed again: by whoever knows the format and wants to harm.
type hostile struct {
	*sealer
	rng   *rand.Rand
	what  string
	kinds map[logstore.Kind][]int // pages of each kind
	inner map[int][]int           // tree pages of each level
}

// Offsets in a tree page and in an extents' list, see docs/format.md.
const (
	nodeLevel, nodeFlags, nodeCount, nodeEntries = 40, 41, 42, 48
	leafHeads, leafSlots                         = 4, 6
	extentBytes                                  = 16
	refSize                                      = 20
)

func (h *hostile) survey() {
	h.kinds, h.inner = map[logstore.Kind][]int{}, map[int][]int{}
	for _, a := range h.pages {
		k := logstore.Kind(h.page(a)[4])
		h.kinds[k] = append(h.kinds[k], a)
		if k == logstore.KindTree {
			level := int(h.page(a)[nodeLevel])
			h.inner[level] = append(h.inner[level], a)
		}
	}
}

func (h *hostile) note(format string, args ...any) { h.what += fmt.Sprintf(format, args...) + "; " }

func one[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// children returns the names in an inner node, which earlier changes may have made anything.
func (h *hostile) children(a int) []byte {
	p := h.page(a)
	n := min(int(le.Uint16(p[nodeCount:])), (logstore.PageSize-nodeEntries)/16)
	return p[nodeEntries+8*n : nodeEntries+16*n]
}

// upper returns an inner node, -1 if there is none.
func (h *hostile) upper() int {
	var all []int
	for level, pages := range h.inner {
		if level > 0 {
			all = append(all, pages...)
		}
	}
	if len(all) == 0 {
		return -1
	}
	slices.Sort(all)
	return one(h.rng, all)
}

// peer returns a page of the level that a node says it is on, itself if there is none: an earlier change may have moved it.
func (h *hostile) peer(a int) int {
	if peers := h.inner[int(h.page(a)[nodeLevel])]; len(peers) > 0 {
		return one(h.rng, peers)
	}
	return a
}

// graph changes what an inner node leads to.
func (h *hostile) graph() {
	a := h.upper()
	if a < 0 {
		return
	}
	c := h.children(a)
	n := len(c) / 8
	if n == 0 {
		return
	}
	i, j := h.rng.IntN(n), h.rng.IntN(n)
	switch h.rng.IntN(8) {
	case 0: // all the same
		for k := range n {
			copy(c[8*k:8*k+8], c[8*i:8*i+8])
		}
		h.note("children of page %d are all %#x", a, le.Uint64(c))
	case 1: // twins
		copy(c[8*j:8*j+8], c[8*i:8*i+8])
		h.note("children %d and %d of page %d", i, j, a)
	case 2: // in another order
		for k := range 8 {
			c[8*i+k], c[8*j+k] = c[8*j+k], c[8*i+k]
		}
		h.note("children %d and %d of page %d change places", i, j, a)
	case 3: // a child of another node of the level
		b := h.peer(a)
		d := h.children(b)
		if len(d) == 0 {
			return
		}
		k := h.rng.IntN(len(d) / 8)
		copy(c[8*i:8*i+8], d[8*k:8*k+8])
		h.note("child %d of page %d is child %d of page %d", i, a, k, b)
	case 4: // itself, or any page
		to := a
		if h.rng.IntN(2) == 0 {
			to = one(h.rng, h.pages)
		}
		le.PutUint64(c[8*i:], uint64(to))
		h.note("child %d of page %d is page %d", i, a, to)
	case 5: // the node of another page of the level
		b := h.peer(a)
		copy(h.page(a)[nodeLevel:], h.page(b)[nodeLevel:])
		h.note("page %d has the node of %d", a, b)
	case 6: // all nodes of the level name the same
		for _, b := range h.inner[int(h.page(a)[nodeLevel])] {
			if d := h.children(b); len(d) > 0 {
				for k := range len(d) / 8 {
					copy(d[8*k:8*k+8], c[8*i:8*i+8])
				}
			}
		}
		h.note("the whole level of page %d has child %#x", a, le.Uint64(c[8*i:]))
	case 7: // a name
		le.PutUint64(c[8*i:], oddNumber[uint64](h.rng, h.sealer))
		h.note("child %d of page %d is %#x", i, a, le.Uint64(c[8*i:]))
	}
}

// leaves exchanges and repeats leaves and what they have.
func (h *hostile) leaves() {
	if len(h.inner[0]) == 0 {
		return
	}
	a, b := one(h.rng, h.inner[0]), one(h.rng, h.inner[0])
	p, q := h.page(a), h.page(b)
	switch h.rng.IntN(4) {
	case 0:
		copy(p[nodeLevel:], q[nodeLevel:])
		h.note("page %d has the records of %d", a, b)
	case 1:
		c := slices.Clone(p[nodeLevel:])
		copy(p[nodeLevel:], q[nodeLevel:])
		copy(q[nodeLevel:], c)
		h.note("pages %d and %d change records", a, b)
	case 2:
		clear(p[nodeLevel:])
		h.note("page %d is empty", a)
	case 3:
		n := copy(p[8:16], q[8:16])
		h.note("page %d has %d bytes of name of %d", a, n, b)
	}
}

// refs returns where the references of a leaf are.
func (h *hostile) refs(a int) (at []int) {
	p := h.page(a)
	n, even := int(le.Uint16(p[nodeCount:])), p[nodeFlags] != 0
	for i := range n {
		s := nodeEntries + leafHeads*n + leafSlots*i
		if even {
			s = nodeEntries + leafHeads*n
		}
		if s+leafSlots > logstore.PageSize {
			break
		}
		offset, key, value := int(le.Uint16(p[s:])), int(le.Uint16(p[s+2:])&0xFFF), int(le.Uint16(p[s+4:]))
		if even {
			offset += i * (key + value&0xFFF)
		}
		if value>>12&3 != 0 && offset+key+refSize <= logstore.PageSize {
			at = append(at, offset+key)
		}
	}
	return at
}

// values changes where values are said to lie.
func (h *hostile) values() {
	var with [][2]int
	for _, a := range h.inner[0] {
		for _, at := range h.refs(a) {
			with = append(with, [2]int{a, at})
		}
	}
	if len(with) == 0 {
		return
	}
	x, y := one(h.rng, with), one(h.rng, with)
	r, s := h.page(x[0])[x[1]:], h.page(y[0])[y[1]:]
	switch h.rng.IntN(4) {
	case 0:
		copy(r[:refSize], s[:refSize])
	case 1:
		copy(r[:8], s[:8])
	case 2:
		le.PutUint64(r, oddNumber[uint64](h.rng, h.sealer))
	case 3:
		le.PutUint64(r[8:], oddNumber[uint64](h.rng, h.sealer))
	}
	h.note("reference at %d of page %d", x[1], x[0])
}

// lists returns the runs that list extents.
func (h *hostile) lists() (lists []int) {
	for _, a := range h.kinds[logstore.KindRun] {
		if le.Uint32(h.page(a)[runCRC+4:]) == 1 {
			lists = append(lists, a)
		}
	}
	return lists
}

// endAt lets the log end with the page at a, as far as a page of the log is there: what follows is zeros.
func (h *hostile) endAt(a int) {
	i := slices.Index(h.chain, a)
	if i < 0 {
		return
	}
	for _, b := range h.chain[i+1:] {
		clear(h.page(b))
		delete(h.sealed, b)
	}
	h.chain = h.chain[:i+1]
	h.note("the log ends with page %d", a)
}

// layers makes the last page of a record group one that says that the write set of a transaction is in the layers that a run lists, so many
// times the same one.
func (h *hostile) layers(a, list, times int) {
	const flagLast, layerRecord = 1, 6
	p := h.page(a)
	if p[5]&flagLast == 0 {
		return
	}
	body := p[logstore.MuxSize:]
	clear(body)
	body[0] = layerRecord
	at := 1 + binary.PutUvarint(body[1:], uint64(times))
	for i := range times {
		le.PutUint64(body[at+8*i:], uint64(list))
	}
	le.PutUint64(p[muxCount:], 1)
	h.note("page %d names the list in page %d %d times", a, list, times)
}

// extents changes a list of extents, which ends its run.
func (h *hostile) extents() {
	lists := h.lists()
	if len(lists) == 0 {
		return
	}
	a := one(h.rng, lists)
	from, n := a*logstore.PageSize+runPayload, int(le.Uint64(h.page(a)[runLength:]))
	if n < 4 || from+n > len(h.file) {
		return
	}
	payload := h.file[from : from+n]
	count := int(le.Uint32(payload[n-4:]))
	if count == 0 || count*extentBytes+4 > n {
		return
	}
	list := payload[n-4-count*extentBytes : n-4]
	i, j := h.rng.IntN(count), h.rng.IntN(count)
	x, y := list[i*extentBytes:(i+1)*extentBytes], list[j*extentBytes:]
	switch h.rng.IntN(6) {
	case 0:
		copy(x, y[:extentBytes])
	case 1:
		le.PutUint64(x, oddNumber[uint64](h.rng, h.sealer))
	case 2:
		le.PutUint32(x[8:], oddNumber[uint32](h.rng, h.sealer))
	case 3:
		le.PutUint32(payload[n-4:], oddNumber[uint32](h.rng, h.sealer))
	case 4: // longer, and all the same
		m := min((logstore.PageSize-runPayload-4)/extentBytes, count+h.rng.IntN(200))
		end := h.page(a)[runPayload:]
		e := slices.Clone(x)
		for k := range m {
			copy(end[k*extentBytes:], e)
		}
		le.PutUint32(end[m*extentBytes:], uint32(m))
		le.PutUint64(h.page(a)[runLength:], uint64(m*extentBytes+4))
	case 5: // overlapping: a page further
		le.PutUint64(x, le.Uint64(y)+1)
	}
	h.note("extent %d of the list in page %d", i, a)
}

// stream changes a number in a stream: of the table, the space map, a flush, or redo.
func (h *hostile) stream() {
	kind := one(h.rng, []logstore.Kind{logstore.KindCheckpoint, logstore.KindCheckpoint, logstore.KindFlush, logstore.KindRecord})
	if len(h.kinds[kind]) == 0 {
		return
	}
	a := one(h.rng, h.kinds[kind])
	body := h.page(a)[logstore.MuxSize:]
	end := len(body)
	for end > 16 && body[end-1] == 0 {
		end--
	}
	at := h.rng.IntN(max(end-8, 1))
	if h.rng.IntN(2) == 0 {
		at &^= 3
	}
	switch h.rng.IntN(6) {
	case 0:
		le.PutUint64(body[at:], oddNumber[uint64](h.rng, h.sealer))
	case 1:
		le.PutUint32(body[at:], oddNumber[uint32](h.rng, h.sealer))
	case 2:
		body[at] = byte(h.rng.Uint32())
	case 3: // an entry is there twice
		n := one(h.rng, []int{4, 8, 12, 16})
		if at+2*n <= len(body) {
			copy(body[at+n:at+2*n], body[at:at+n])
		}
	case 4: // two of them change places
		n, b := one(h.rng, []int{4, 8, 12, 16}), h.rng.IntN(max(end-16, 1))
		if max(at, b)+n <= len(body) {
			c := slices.Clone(body[at : at+n])
			copy(body[at:at+n], body[b:b+n])
			copy(body[b:b+n], c)
		}
	case 5:
		b := h.page(one(h.rng, h.kinds[kind]))[logstore.MuxSize:]
		copy(body, b)
	}
	h.note("stream of kind %d, page %d at %d", kind, a, logstore.MuxSize+at)
}

// supers lets the superblocks disagree, or lead elsewhere.
func (h *hostile) supers() {
	p, q := h.page(h.rng.IntN(2)), h.page(h.rng.IntN(2))
	at := one(h.rng, []int{12, 24, 32, 48, 56, 60, 64, 72, 76, 80, 84, 88, 96, 100, 104, 112, 120})
	switch h.rng.IntN(4) {
	case 0:
		copy(p[at:at+8], q[at:at+8])
	case 1:
		le.PutUint32(p[at:], oddNumber[uint32](h.rng, h.sealer))
	case 2:
		le.PutUint64(p[at:], oddNumber[uint64](h.rng, h.sealer))
	case 3:
		copy(p[superRun:superRun+48], q[superRun:superRun+48])
	}
	h.note("superblock at %d", at)
}

// headers changes a segment's header, and with it where the log goes on.
func (h *hostile) headers() {
	n := h.rng.IntN(len(h.file) / h.segment)
	p := h.page(h.headerOf(n))
	at := one(h.rng, []int{5, 8, headerSuccessor, headerSalt, 24, headerBefore, 40, 48})
	if h.rng.IntN(2) == 0 {
		le.PutUint32(p[at:], oddNumber[uint32](h.rng, h.sealer))
	} else {
		copy(p[at:at+8], h.page(h.headerOf(h.rng.IntN(len(h.file) / h.segment)))[at:at+8])
	}
	h.note("header of segment %d at %d", n, at)
}

// spoil makes one to three changes.
func (h *hostile) spoil() {
	h.survey()
	for range 1 + h.rng.IntN(3) {
		switch h.rng.IntN(18) {
		case 0, 1, 2, 3:
			h.graph()
		case 4:
			h.leaves()
		case 5:
			h.values()
		case 6:
			h.extents()
		case 7, 8:
			h.stream()
		case 9:
			h.supers()
		case 10:
			h.headers()
		case 11:
			h.note("%s", h.mutate(h.rng))
		case 12, 13:
			h.repeated()
		case 14:
			h.table()
		case 15:
			h.counts()
		case 16:
			h.levels()
		case 17:
			h.loop()
		}
	}
	h.seal()
}

// longer is how many bytes a file gets at its end, all of them a hole.
func longer(rng *rand.Rand, segment int) int64 {
	switch rng.IntN(16) {
	case 0:
		return int64(1+rng.IntN(100)) * int64(segment)
	case 1:
		return 100<<20 + int64(rng.IntN(100<<20))
	}
	return 0
}

// tall is a database with a tree of three levels, values of all kinds, and write sets that left memory.
func tall(t testing.TB, closed bool) *specimen {
	return filled(t, &load{segmentPages: 8, keys: 400, style: 4, ops: 60, deletes: 5, big: 60 << 10, bigShare: 8, middle: 10,
		memoryLimit: 1 << 20, redoLimit: 1 << 20, stepPages: 3}, closed)
}

// low is tall with less in it, so that more such files can be tried.
func low(t testing.TB, closed bool) *specimen {
	return filled(t, &load{segmentPages: 8, keys: 150, style: 4, ops: 12, deletes: 5, big: 40 << 10, bigShare: 12, middle: 10,
		memoryLimit: 1 << 20, redoLimit: 1 << 20, stepPages: 3}, closed)
}

// filled is a database with all keys of a load and some more transactions.
func filled(t testing.TB, l *load, closed bool) *specimen {
	s := &specimen{name: "tall", load: l, closed: closed}
	c := &trial{load: l, trace: func(string, ...any) {}, known: map[uint64]fingerprint{}}
	r := newRunner(c, rand.New(rand.NewPCG(9, 9)), vfs.NewMem(0))
	defer func() { r.mem.Release() }()
	do := func(f func() error) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	do(r.open)
	some := func(n int) {
		for range n * min(l.ops, 1) {
			do(func() error { return r.commit(l.draw(r.rng, r.mem)) })
		}
	}
	some(12)
	do(func() error { return r.commit(l.drawAll(r.rng)) })
	do(r.db.Checkpoint)
	some(4)
	if closed {
		do(r.db.Close)
	} else {
		r.abandon()
	}
	s.file, s.hist = content(r.mem, 0, fileSize(r.mem)), r.hist
	return s
}

const (
	hostileMemory = 32 // bytes allocated for each byte that a hostile file holds, beside MemoryLimit and a fixed amount: in all, not at once
	hostileFixed  = 16 << 20
	hostileTime   = 30 * time.Second // for a file of a few MB, on a busy machine
)

// use goes through all that a program may do with a database. It takes time and memory for what the file holds, whatever that says.
func (s *specimen) use(mem *vfs.Mem, rng *rand.Rand, readOnly, beside bool) error {
	o := s.load.options(rand.New(rand.NewPCG(rng.Uint64(), 1)))
	o.Store.ReadOnly, o.Store.Beside = readOnly, beside
	begin := time.Now()
	_, err := frugal(s.load.memoryLimit+hostileFixed+hostileMemory*int64(len(s.file)), func() (bool, error) {
		db, err := openEngine(mem, crashPath, o)
		if err != nil {
			return true, damageOnly(err)
		}
		defer db.Close()
		steps := 1000 * s.load.keys
		err = db.View(func(tx *Tx) error {
			for _, all := range []func(func(k, v []byte) bool){tx.All(), tx.Backward(nil, nil)} {
				for range all {
					if steps--; steps < 0 {
						return errors.New("a scan without end")
					}
				}
			}
			return nil
		})
		if err != nil && damageOnly(err) != nil {
			return true, err
		}
		for range 5 {
			if _, err := db.Get([]byte(s.load.key(rng.IntN(s.load.keys)))); err != nil && !errors.Is(err, ErrNotFound) && damageOnly(err) != nil {
				return true, err
			}
		}
		if err := db.Check(context.Background()); err != nil {
			if err := damageOnly(err); err != nil {
				return true, fmt.Errorf("check: %w", err)
			}
		}
		if readOnly {
			return false, nil
		}
		for range 20 { // writing may fail, and no more
			k := []byte(s.load.key(rng.IntN(s.load.keys)))
			if rng.IntN(3) == 0 {
				err = db.Delete(k)
			} else {
				err = db.Put(k, randomBytes(rng, rng.IntN(900)))
			}
			if err != nil {
				break
			}
			if rng.IntN(6) == 0 {
				db.Checkpoint()
			}
		}
		db.Checkpoint()
		db.Compact(context.Background(), nil)
		return false, nil
	})
	if took := time.Since(begin); err == nil && took > hostileTime {
		err = fmt.Errorf("it took %v", took)
	}
	if n := mem.Used(); err == nil && n > 2*int64(len(s.file))+hostileFixed {
		err = fmt.Errorf("the file takes %d bytes on disk", n)
	}
	return err
}

// TestHostileFiles: well-sealed files whose structure is wrong do no harm, whatever is done with them.
func TestHostileFiles(t *testing.T) {
	inTurn(t)
	limit := 500 * time.Millisecond // for each specimen
	if testing.Short() {
		limit /= 4
	}
	total := 1 << 30
	if *hostileFiles > 0 {
		limit, total = 1<<62, *hostileFiles
	}

	specimens := []*specimen{low(t, true), low(t, false), tall(t, true), newSpecimen(t, true, false), newSpecimen(t, false, false)}
	for i, s := range specimens {
		t.Run(fmt.Sprintf("%d %s", i, s.name), func(t *testing.T) {
			plain := newSealer(s.file, int(s.load.segmentPages))
			s.damage(t, limit, total/len(specimens), func(n int) (bool, string, error) {
				rng := rand.New(rand.NewPCG(*hostileFrom+uint64(n), uint64(i)))
				c := *plain
				c.file = slices.Clone(plain.file)
				h := &hostile{sealer: &c, rng: rng}
				h.spoil()
				bad := specimen{file: h.file, load: s.load}
				mem := bad.mem(len(h.file))
				defer mem.Release()
				if n := longer(rng, h.segment); n > 0 {
					overwrite(mem, int64(len(h.file))+n-1, []byte{0})
					h.note("%d bytes longer", n)
				}
				for _, mode := range []string{"beside", "read-only", "writing", "again"} {
					if err := s.use(mem, rng, mode == "beside" || mode == "read-only", mode == "beside"); err != nil {
						return false, fmt.Sprintf("seed %d, %s: %s", *hostileFrom+uint64(n), mode, h.what), err
					}
				}
				return false, h.what, nil
			})
		})
	}
}
