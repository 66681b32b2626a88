package override

import (
	"math/bits"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

type versionKind uint8

const (
	inMemory  versionKind = iota // node is the image
	atAddress                    // the image is the page at addr
	removed                      // the page left the tree
	tombstone                    // folded away: parents name the page by its address from this Seq on; nobody reads it by this name
)

// A version is one image of a page, valid from seq to the version before it in the chain. Published versions don't change, but for
// next, which moves past versions that nobody can see any more.
type version struct {
	seq  uint64
	kind versionKind
	addr logstore.Addr
	node btree.Node
	next atomic.Pointer[version] // older
}

// An entry is what the table knows of a name. head is read by anyone, the rest belongs to the token holder; disk is also read by
// the encoder of a checkpoint, during which it does not change.
type entry struct {
	id      logstore.PageID
	head    atomic.Pointer[version] // never nil once the entry is in the table
	disk    logstore.Addr           // where the table as recovered would lead; 0 = the name itself, or nowhere for a born name
	epoch   uint64                  // in which the page became dirty: see dirtyPages
	dirty   int32                   // its index among those, plus 1; 0 = clean
	gain    int32                   // if dirty and not must: records that it has more than its image on disk
	must    bool                    // the next flush has to write it
	flying  bool                    // the flush in flight writes it for the first time
	family  *family                 // with which it is written or left behind; nil if it may be alone
	folding bool                    // a fold has met it: below a second name of the same parent it must not meet it again
	lent    logstore.Addr           // place of the page that it was renamed from, until it has one: versions may have cells in the image there
	link    *link                   // for the table to use, until it has
}

// at returns the version that a reader at seq sees, or nil.
func (e *entry) at(seq uint64) *version {
	v := e.head.Load()
	for v != nil && v.seq > seq {
		v = v.next.Load()
	}
	return v
}

// place returns where the newest installed image lies, 0 for a page that was never written.
func (e *entry) place() logstore.Addr {
	if e.disk == 0 && logstore.IsAddr(e.id) {
		return e.id
	}
	return e.disk
}

// link is one element of a bucket's chain. Links are separate from entries so that a larger bucket array can be built of new links
// while readers walk the old ones.
type link struct {
	id    logstore.PageID
	entry *entry
	next  atomic.Pointer[link]
}

type buckets struct {
	shift uint
	heads []atomic.Pointer[link]
}

func newBuckets(log uint) *buckets {
	return &buckets{shift: 64 - log, heads: make([]atomic.Pointer[link], 1<<log)}
}

func (b *buckets) head(id logstore.PageID) *atomic.Pointer[link] {
	return &b.heads[id*0x9E3779B97F4A7C15>>b.shift]
}

// fresh is an entry as it comes into the table, with its first version and its link in the cache lines beside it: looking up a page that
// has not changed since waits for memory twice, not four times.
type fresh struct {
	link  link
	entry entry
	first version
}

// newEntry returns an entry and the version that is to be its first.
func newEntry(id logstore.PageID) (*entry, *version) {
	f := &fresh{}
	f.entry.id = id
	f.entry.link = &f.link
	f.entry.head.Store(&f.first)
	return &f.entry, &f.first
}

const minTableLog = 6

// table is the translation table: a chained hash from names to entries (section 4.4 of the paper).
//
// Lookups take no lock. A reader that holds the bucket array from before a growth misses only entries made later, whose versions are
// all newer than the watermark it reads at; a name without an entry leads to the page at that address, which is what such a reader
// wants.
type table struct {
	buckets atomic.Pointer[buckets]
	count   atomic.Int64 // entries
}

func newTable(expected int) *table {
	t := &table{}
	t.buckets.Store(newBuckets(max(minTableLog, uint(bits.Len(uint(expected))))))
	return t
}

func (t *table) find(id logstore.PageID) *entry {
	for l := t.buckets.Load().head(id).Load(); l != nil; l = l.next.Load() {
		if l.id == id {
			return l.entry
		}
	}
	return nil
}

// insert adds an entry that is not in the table. Token held.
func (t *table) insert(e *entry) {
	if n := t.count.Add(1); n > int64(len(t.buckets.Load().heads)) {
		t.grow()
	}
	h := t.buckets.Load().head(e.id)
	l := e.link
	if l == nil {
		l = &link{}
	}
	e.link = nil
	l.id, l.entry = e.id, e
	l.next.Store(h.Load())
	h.Store(l)
}

func (t *table) grow() {
	old := t.buckets.Load()
	b := newBuckets(64 - old.shift + 1)
	links := make([]link, 0, t.count.Load())
	for i := range old.heads {
		for l := old.heads[i].Load(); l != nil; l = l.next.Load() {
			h := b.head(l.id)
			links = append(links, link{id: l.id, entry: l.entry})
			n := &links[len(links)-1]
			n.next.Store(h.Load())
			h.Store(n)
		}
	}
	t.buckets.Store(b)
}

// remove takes an entry out. Token held. The removed link keeps its next, for readers that stand on it.
func (t *table) remove(e *entry) {
	at := t.buckets.Load().head(e.id)
	for l := at.Load(); l != nil; at, l = &l.next, l.next.Load() {
		if l.entry == e {
			at.Store(l.next.Load())
			t.count.Add(-1)
			return
		}
	}
	panic("override: removed an entry that is not in the table")
}

// all calls f for each entry. Entries inserted or removed meanwhile may or may not be among them.
func (t *table) all(f func(*entry)) {
	b := t.buckets.Load()
	for i := range b.heads {
		for l := b.heads[i].Load(); l != nil; l = l.next.Load() {
			f(l.entry)
		}
	}
}
