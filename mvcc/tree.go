package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/invariants"
	"flashdbm/internal/overlay"
	"flashdbm/logstore"
)

// tree is the newest version of the tree, and the memtables above it. Its fields except the atomic ones belong to the
// token holder.
type tree struct {
	logParts

	records int64 // in the tree, without the memtables
	upto    treeBase
	gain    float64 // records that the last background merge has added, for each of its keys
	tables  memtables
	sets    sets
	leafy   atomic.Bool   // the tree had more than fewKeys pages, dirty ones included
	memory  atomic.Int64  // bytes of versions, as of the last batch
	ceiling atomic.Int64  // bytes of versions above which a commit calls relieve: MemoryLimit, or more while readers hold that
	horizon atomic.Uint64 // as of the last reclaim
}

// treeBase is the end of a group of the log. When the tree had got all commits up to seq, it had all commits up to
// that end and none after it.
type treeBase struct {
	seq, group uint64
	bytes      int64 // of redo
}

// exact reports whether the tree has exactly the commits up to the end of some group of the log, which can then be
// the base of a flush: the newest group, or the one up to which the last background merge went. The latter must be
// above the base of the flush before: a flush whose base is at or below that of a checkpoint is taken by recovery for
// a flush that the checkpoint includes. Token held; no merge is under way.
func (t *tree) exact() bool {
	t.token.mustBeHeld()
	return t.tables.lacksNothing() || t.upto.group > t.pages.Base() && t.upto.seq == t.readers.views.newest.Load().Base
}

// base returns that group, and the bytes of redo up to its end; the group does not grow any more. Token held. The
// tree is exact and, if it lacks nothing, no redo waits for the log.
func (t *tree) base() (group uint64, bytes int64) {
	if t.tables.lacksNothing() {
		return t.store.CloseGroup(), t.log.bytes.Total()
	}
	return t.upto.group, t.upto.bytes
}

// merged makes new readers register at another version of the tree, which has all commits up to base. Token held.
func (t *tree) merged(tree, base uint64, records int64) {
	t.records = records
	t.tables.merged(tree, base)
	t.publishView(tree, base)
}

// publishView publishes a view of a version of the tree, which has all commits up to base, with the present
// memtables. Token held.
func (t *tree) publishView(tree, base uint64) {
	t.token.mustBeHeld()
	if before := t.readers.views.newest.Load(); invariants.Enabled && before != nil {
		invariants.Check(tree >= before.Tree && base >= before.Base, "the version of the tree that readers get moves back")
	}
	t.readers.views.newest.Store(&overlay.View{Tree: tree, Base: base, Records: t.records, Tables: t.tables.list()})
}

// publish shows a version of the tree that has all commits: new updates read at seq. Token held.
func (t *tree) publish(seq uint64, records int64) {
	t.merged(seq, seq, records)
	t.marks.show(seq)
}

// publishEdit shows the version of the tree begun last, which has the same commits as the one before it. Its number
// is the next Seq, and no commit has that. It is noted in marks last, so that durable never passes applied. Token
// held.
func (t *tree) publishEdit() {
	seq, base := t.pages.Seq(), t.readers.views.newest.Load().Base
	if t.tables.lacksNothing() {
		base = seq
	}
	t.publishView(seq, base)
	t.marks.show(seq)
	t.log.noteLogged(seq)
	t.marks.publishDurable()
}

// reclaimNow frees what nobody can see, and returns the bytes that a flush would write. It first makes a new version
// of the tree, above everything retired so far: so new readers register above it.
func (t *tree) reclaimNow() (dirty int64, err error) {
	err = t.withTree(func() error {
		if err := t.Failed(); err != nil {
			return err
		}
		t.pages.Begin(t.marks.applied.Load() + 1)
		t.publishEdit()
		t.reclaimAll()
		dirty = t.pages.DirtyBytes()
		return nil
	})
	return dirty, err
}

// reclaim frees what nobody can see, except what an ended reader held while an older one goes on: finding that may
// take a while. Token held.
func (t *tree) reclaim() { t.reclaimed(t.pages.Reclaim(&t.readers.views)) }

// reclaimAll frees everything that nobody can see. Token held.
func (t *tree) reclaimAll() { t.reclaimed(t.pages.ReclaimAll(&t.readers.views)) }

func (t *tree) reclaimed(horizon uint64) {
	t.token.mustBeHeld()
	t.horizon.Store(horizon)
	t.tables.reclaim(horizon)
	t.measure()
}

// memoryBytes is what counts against MemoryLimit in addition to write sets. Token held.
func (f *file) memoryBytes() int64 { return f.pages.MemoryBytes() + f.pages.BookBytes() }

// measure notes the memory that versions take. Token held.
func (t *tree) measure() {
	held := t.memoryBytes()
	t.memory.Store(held)
	t.known.dirty.Store(int64(t.pages.DirtyPages()))
	if held <= t.opts.MemoryLimit {
		t.ceiling.Store(t.opts.MemoryLimit)
	}
}

// treeSizes are the sizes of the tree that reservations and decisions are based on.
type treeSizes struct {
	dirty     int64 // bytes of dirty pages
	must      int64 // pages that the next flush has to write
	grown     int64 // further dirty pages that have no place yet or were split: see override.Pages.GrownPages
	born      int64 // pages that splits have made and no flush has written
	unwritten int64 // pages: see override.Pages.Unwritten
	memory    int64 // bytes that count against MemoryLimit
}

// sizes returns the sizes of the tree, or those of the moment when the merge under way began. Token held.
func (t *tree) sizes() treeSizes {
	t.token.mustBeHeld()
	if m := t.tables.merge.Load(); m != nil {
		return m.sizes
	}
	return treeSizes{t.pages.DirtyBytes(), t.pages.MustPages(), t.pages.GrownPages(), t.pages.BornPages(), t.pages.Unwritten(), t.memoryBytes()}
}

// leaves returns about how many pages the tree has. It assumes that either most dirty pages have a place already, or
// most have none yet. Token held.
func (t *tree) leaves() int64 {
	return max(t.treeBytes(), t.sizes().dirty) / logstore.PageSize
}

// changedPages bounds the pages that ops make dirty: at most one for each op, and at most the leaves and those that
// they split into; plus leaves that the next flush writes for the first time. bytes is the length of the ops' keys
// and values.
func (t *tree) changedPages(ops, bytes int64) int64 {
	grown := bytes/splitBytes + 1
	tree := t.sizes()
	return min(ops, t.livePages()+tree.must+tree.grown+grown) + grown
}

// treeBytes returns the bytes of live pages, without those of logged values.
func (f *file) treeBytes() int64 {
	s := f.store.SpaceStats()
	return s.LiveBytes - s.LoggedBytes
}

// livePages bounds the pages of the tree that have room of their own: live pages, and those that a flush in flight
// makes live.
func (f *file) livePages() int64 {
	unplaced := f.pages.Unplaced() // read first: a page that gets its place in between counts twice, not never
	return unplaced + f.treeBytes()/logstore.PageSize
}
