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
	tombstone                    // folded away: from this Seq on parents name the page by its address, and no reader uses this name
)

// A version is one image of a page. Readers from seq up to but excluding the Seq of the next newer version in
// the chain use it. A published version does not change, except that next is moved past versions that no reader
// can use any more.
type version struct {
	seq  uint64
	kind versionKind
	addr logstore.Addr
	node btree.Node
	next atomic.Pointer[version] // older
}

// An entry is what the token holder knows about a name. Readers use its link. disk is also read by the encoder of a
// checkpoint's table, during which disk does not change, and by a check, which holds its mutex (Installed.mu).
type entry struct {
	id      logstore.PageID
	link    *link         // in the newest bucket array; once the entry is in the table
	disk    logstore.Addr // where the table on disk leads; 0: to the name itself, or nowhere for a born name
	epoch   uint64        // epoch in which the page became dirty: see dirtyPages
	dirty   int32         // index in dirtyPages.pages, plus 1; 0: clean
	gain    int32         // for a dirty page that may be left behind: how many records it has more than its image on disk
	must    bool          // the next flush has to write it
	born    bool          // counts in dirtyPages.born
	flying  bool          // the flush in flight writes it for the first time
	family  *family       // pages with which this one is written or left behind; nil if it may be written alone
	heads   atomic.Bool   // it is the parent of its family; any goroutine reads it
	folding bool          // a fold in progress has met it; a second name of the same parent that leads here is damage
	lent    logstore.Addr // until the page has a place: place of the page that it was renamed from, where versions may have cells in the image
}

// newest returns the newest version. Token held.
func (e *entry) newest() *version { return e.link.head.Load() }

// show makes v the newest version, for readers that come by the name from now on. Token held.
func (e *entry) show(v *version) { e.link.head.Store(v) }

// place returns the address of the newest installed image, 0 for a page that was never written.
func (e *entry) place() logstore.Addr {
	if e.disk == 0 && logstore.IsAddr(e.id) {
		return e.id
	}
	return e.disk
}

// link is one element of a bucket's chain. A link is replaced by a new one when its page gets a new version (replace),
// and all are when the table grows, while readers may still walk the old links. The heads of old links do not change
// after that. These readers registered before the replacement, so the versions that they use were in the chains by
// then. None of those versions is freed before the readers have ended, not even one that a flush has replaced by an
// address in the new chain. An old link may lead to other old links; what was said holds for each of them.
type link struct {
	id    logstore.PageID
	entry *entry
	head  atomic.Pointer[version] // never nil
	next  atomic.Pointer[link]
}

// at returns the version that a reader at seq uses, or nil.
func (l *link) at(seq uint64) *version {
	v := l.head.Load()
	for v != nil && v.seq > seq {
		v = v.next.Load()
	}
	return v
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

// fresh allocates a link and a version together, in adjacent cache lines: then the lookup of a page whose newest version
// this is has one cache miss after the bucket, not two. The entry is allocated separately. It outlives the link, and
// would otherwise keep the old link and its versions in memory. A growth makes links without a version; the next
// version of each page comes with one again.
type fresh struct {
	link  link
	first version
}

// newEntry returns an entry and its first version, which the caller fills in before the entry is published.
func newEntry(id logstore.PageID) (*entry, *version) {
	f := &fresh{link: link{id: id}}
	e := &entry{id: id, link: &f.link}
	f.link.entry = e
	f.link.head.Store(&f.first)
	return e, &f.first
}

// renew returns a new link for an entry, with a version that the caller fills in before it calls replace.
func renew(e *entry) *fresh {
	f := &fresh{link: link{id: e.id, entry: e}}
	f.link.head.Store(&f.first)
	return f
}

// replace is show for the version of f: f's link takes the place of the entry's link. Token held.
func (t *table) replace(e *entry, f *fresh) {
	at := t.buckets.Load().head(e.id)
	l := at.Load()
	for ; l != nil && l != e.link; l = at.Load() {
		at = &l.next
	}
	if l != nil {
		f.link.next.Store(l.next.Load())
		at.Store(&f.link)
	}
	e.link = &f.link
}

const minTableLog = 6

// table is the translation table: a chained hash from names to entries (section 4.4 of the paper).
//
// Lookups take no lock. A reader that holds the bucket array from before a growth misses only entries made
// later. All versions of such an entry are newer than the watermark at which the reader reads, except the page
// at the address that is the entry's name; a name without an entry leads to exactly that page.
type table struct {
	buckets atomic.Pointer[buckets]
	count   atomic.Int64 // entries
}

func newTable(expected int) *table {
	t := &table{}
	t.buckets.Store(newBuckets(max(minTableLog, uint(bits.Len(uint(expected))))))
	return t
}

// look returns the link of a name, or nil. Any goroutine may call it.
func (t *table) look(id logstore.PageID) *link {
	l := t.buckets.Load().head(id).Load()
	for l != nil && l.id != id {
		l = l.next.Load()
	}
	return l
}

// find returns the entry of a name, or nil. Any goroutine may call it; see entry for what may be read without the token.
func (t *table) find(id logstore.PageID) *entry {
	if l := t.look(id); l != nil {
		return l.entry
	}
	return nil
}

// insert adds an entry that is not in the table. Token held.
func (t *table) insert(e *entry) {
	if n := t.count.Add(1); n > int64(len(t.buckets.Load().heads)) {
		t.grow()
	}
	h := t.buckets.Load().head(e.id)
	e.link.next.Store(h.Load())
	h.Store(e.link)
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
			n.head.Store(l.head.Load())
			n.next.Store(h.Load())
			h.Store(n)
			l.entry.link = n
		}
	}
	t.buckets.Store(b)
}

// remove takes an entry out. The removed link keeps its next pointer, for readers that are at that link. Token
// held.
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

// all calls f for each link. Entries inserted or removed meanwhile may or may not be visited. Any goroutine may call
// it.
func (t *table) all(f func(*link)) {
	b := t.buckets.Load()
	for i := range b.heads {
		for l := b.heads[i].Load(); l != nil; l = l.next.Load() {
			f(l)
		}
	}
}
