package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// A PageSink receives the pages of a tree from a Builder, children before their parents.
type PageSink interface {
	// Page returns the name of the next page and memory for its body, which the Builder fills before its next call
	// of the sink. A nil body means that the sink only counts pages. root says that the page is the root, which
	// comes last.
	Page(root bool) (id PageID, body []byte, err error)
}

// ErrOrder: the key of a record is not above that of the record before it.
var ErrOrder = errors.New("flashdbm: records are not in ascending order of their keys")

// A Builder builds a tree from the leaves upwards, from records in ascending order of their keys. It fills each
// page before it begins the next page of that level, and passes each page to the sink once. The Builder needs
// memory for one page of each level.
//
// Invariants:
//
//   - At each level, once a page of the level below was passed to the sink, the page being filled has at least
//     one record or child. So when Finish runs, the topmost page has at least two children.
//   - The pages do not depend on the sink: two runs over the same records make the same pages in the same order.
type Builder struct {
	sink   PageSink
	even   bool // even leaves are allowed
	leaf   leafFill
	levels []innerFill // levels 1 and up
	row    *Row        // the leaves, if the Builder makes no levels above them
	apart  bool        // the next record begins a new leaf
	last   []byte      // whole key of the last record
	count  int64       // records added
}

// NewBuilder returns a Builder that hands its pages to sink. even says that the file may have even leaves.
func NewBuilder(sink PageSink, even bool) *Builder {
	return &Builder{sink: sink, even: even, leaf: leafFill{cells: make([]byte, 0, PageSize), slots: make([]fillSlot, 0, maxLeafCount)}}
}

// leafFill is the leaf being filled.
type leafFill struct {
	cells []byte     // cells of its records, back to back
	slots []fillSlot // slots of its records
	even  bool       // all records have the same lengths
	low   separator  // the separator between the previous leaf and this one
}

type fillSlot struct {
	at      int    // offset of the cell in cells
	lengths uint32 // lengths with flags, as in a slot
}

// innerFill is an inner node being filled.
type innerFill struct {
	entries []entry
	size    int // bytes of its body
	prefix  int // the common prefix that size was computed with
}

// Records returns the number of records added.
func (b *Builder) Records() int64 { return b.count }

// Last returns the key of the last record added, valid until the next Add. ok is false if there is none.
func (b *Builder) Last() (key []byte, ok bool) { return b.last, b.count > 0 }

// Add adds the record of a put. ErrOrder if its key is not above that of the record before. It copies key and
// value. For a sink that only counts, op.Value may be any slice of the right length.
func (b *Builder) Add(op *Op) error {
	if b.count > 0 && bytes.Compare(b.last, op.Key) >= 0 {
		return fmt.Errorf("%w: record %d", ErrOrder, b.count+1)
	}
	size, lengths := op.cellLen(), op.lengths()
	l := &b.leaf
	if n := len(l.slots); n > 0 {
		even := b.even && l.even && l.slots[0].lengths == lengths
		if b.apart || !leafFits(n+1, len(l.cells)+size, even) {
			if err := b.endLeaf(op.inlineKey()); err != nil {
				return err
			}
		} else {
			l.even = even
		}
	}
	b.apart = false
	if len(l.slots) == 0 {
		l.even = true
	}
	at := len(l.cells)
	l.slots = append(l.slots, fillSlot{at, lengths})
	l.cells = l.cells[:at+size]
	op.cell(l.cells[at:])
	b.last = append(b.last[:0], op.Key...)
	b.count++
	return nil
}

// BeginLeaf makes the next record begin a new leaf, even if the present leaf has room.
func (b *Builder) BeginLeaf() { b.apart = true }

// cell writes the cell of a put.
func (op *Op) cell(cell []byte) {
	cell = cell[copy(cell, op.inlineKey()):]
	le := binary.LittleEndian
	switch {
	case op.Ref == nil:
		copy(cell, op.Value)
	case op.Ref.Kind == Logged:
		le.PutUint64(cell, op.Ref.ID)
		le.PutUint16(cell[placeLengthAt:], uint16(op.Ref.ValueLen))
	default:
		le.PutUint64(cell, op.Ref.ID)
		le.PutUint64(cell[8:], op.Ref.ValueLen)
		le.PutUint32(cell[16:], op.Ref.KeyLen)
	}
}

// endLeaf hands out the leaf and begins the next one, whose first key has the inline part next.
func (b *Builder) endLeaf(next []byte) error {
	last := b.leaf.key(len(b.leaf.slots) - 1)
	need := commonPrefix(last, next) + 1
	cut := need > MaxSeparator
	if cut {
		need = MaxSeparator
	}
	low := separator{bytes.Clone(next[:need]), cut}
	id, err := b.putLeaf(false)
	switch e := (entry{separator: b.leaf.low, id: id}); {
	case err != nil:
	case b.row != nil:
		b.row.entries = append(b.row.entries, e)
	default:
		err = b.child(1, e)
	}
	b.leaf.low, b.leaf.slots, b.leaf.cells = low, b.leaf.slots[:0], b.leaf.cells[:0]
	return err
}

func (b *Builder) putLeaf(root bool) (PageID, error) {
	id, body, err := b.sink.Page(root)
	if err == nil && body != nil {
		b.leaf.encode(body, b.even)
	}
	return id, err
}

// key returns the inline part of the key of record i.
func (l *leafFill) key(i int) []byte {
	s := l.slots[i]
	return l.cells[s.at : s.at+int(s.lengths&lengthMask)]
}

// encode writes the body of the leaf exactly as Node.Encode would.
func (l *leafFill) encode(body []byte, even bool) {
	count := len(l.slots)
	if count == 0 {
		EncodeEmptyLeaf(body)
		return
	}
	even = even && l.even && count > 1
	prefix := 0
	if count > 1 {
		prefix = commonPrefix(l.key(0), l.key(count-1))
	}
	le := binary.LittleEndian
	body[levelAt], body[flagsAt] = 0, 0
	if even {
		body[flagsAt] = flagEven
	}
	start := leafBytes(count, 0, even)
	le.PutUint16(body[countAt:], uint16(count))
	le.PutUint16(body[prefixAt:], uint16(prefix))
	le.PutUint16(body[cellBytesAt:], uint16(len(l.cells)))
	heads := body[headerBytes:]
	slots := heads[count*headBytes:]
	for i, s := range l.slots {
		le.PutUint32(heads[i*headBytes:], headOf(l.key(i)[prefix:]))
		if i == 0 || !even {
			le.PutUint16(slots[i*leafSlotBytes:], uint16(MuxSize+start+s.at))
			le.PutUint32(slots[i*leafSlotBytes+2:], s.lengths)
		}
	}
	clear(body[start+copy(body[start:], l.cells):])
}

// child adds a child to the node of the given level that is being filled. If the node is full, it is handed out
// first.
func (b *Builder) child(level int, e entry) error {
	if level > MaxHeight {
		return fmt.Errorf("flashdbm: a tree of more than %d levels", MaxHeight)
	}
	if len(b.levels) < level {
		b.levels = append(b.levels, innerFill{})
	}
	if l := &b.levels[level-1]; l.add(e) {
		return nil
	}
	id, err := b.putInner(level, false)
	if err != nil {
		return err
	}
	low := b.levels[level-1].entries[0].separator
	b.levels[level-1] = innerFill{entries: b.levels[level-1].entries[:0]}
	b.levels[level-1].add(e)
	return b.child(level+1, entry{separator: low, id: id})
}

// add adds a child if there is room.
func (l *innerFill) add(e entry) bool {
	l.entries = append(l.entries, e)
	size, prefix := 0, sharedPrefix(l.entries)
	if n := len(l.entries); n > 3 && prefix == l.prefix {
		size = l.size + entrySize(&l.entries[n-1], prefix)
	} else {
		size = innerSize(l.entries)
	}
	if size > BodySize {
		l.entries = l.entries[:len(l.entries)-1]
		return false
	}
	l.size, l.prefix = size, prefix
	return true
}

func (b *Builder) putInner(level int, root bool) (PageID, error) {
	id, body, err := b.sink.Page(root)
	if err == nil && body != nil {
		entries := b.levels[level-1].entries
		clear(body[encodeInner(pointerTo(body), level, entries):])
	}
	return id, err
}

// Finish hands out the pages that are left, the root last. The Builder must not be used afterwards.
func (b *Builder) Finish() error {
	if len(b.levels) == 0 {
		_, err := b.putLeaf(true)
		return err
	}
	id, err := b.putLeaf(false)
	e := entry{separator: b.leaf.low, id: id}
	for level := 1; err == nil; level++ {
		if err = b.child(level, e); err != nil {
			break
		}
		l := &b.levels[level-1]
		root := level == len(b.levels)
		e.separator = l.entries[0].separator
		if e.id, err = b.putInner(level, root); root {
			break
		}
	}
	return err
}
