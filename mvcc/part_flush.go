package mvcc

import (
	"cmp"
	"math"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Incremental flush: if much is dirty, one part of the tree is flushed at a time, in key order, round after round.
// The images that a part replaces then lie together, because the previous round has written them together, so their
// segments become free as a whole, after two checkpoints and without cleaning. A flush of everything at once would
// need a file that holds two trees, the present one and the one being written, and the log of two turns.
//
// Each leaf is written as often as by flushes of all, once for each RedoLimit of redo, and slightly less often: there
// are as many parts as the redo is divided into. Leaves that a part leaves behind hold the redo start back; so redo
// is always about RedoLimit long, and parts come evenly instead of in bursts. A page that has to be written
// (override's dirtyPages) goes with the next part wherever it is. If there are many such pages, as in a tree that
// grows everywhere, parts would write them again and again, and everything is flushed at once.
const (
	mostParts = 32 // most parts of a round
	// partBytes: if less than twice as many bytes are dirty, everything is flushed at once. While leaves are left behind,
	// that is so below half of partBytes (goOnShare). A part covers at least a quarter of partBytes (partShare).
	partBytes = 4 << 20
	partShare = 4
	goOnShare = 2
	// mustShare: everything is flushed at once if new pages that have to be written come fast: while as much redo as the
	// redo limit is written, more of them than a quarter of the dirty pages.
	mustShare = 4
	// mustAll: everything is flushed at once if three quarters of the dirty pages have to be written. That is nearly all
	// of them, and after a flush of all, redo starts at its base.
	mustAll    = 4
	mostBehind = 3 // if redo reaches 3 times its limit nevertheless, everything is flushed and no leaf is left behind
	partsAhead = 2 // a part is due so early that the redo of two further parts may be written while it is flushed
	// Clean leaves are moved out of segments with few live pages. While the useless bytes of the file are at most 20 % of
	// the live ones (sparseFrom), these are segments of which at most an eighth is live (sparseLeast); from 35 % on
	// (sparseTo), segments of which at most seven eighths are live; in between the limit grows evenly. See sparseLimit.
	sparseFrom  = 20
	sparseTo    = 35
	sparseLeast = 8
	// sparseShare: a quarter of a part's leaves may be added from elsewhere in the tree, because they are nearly alone in
	// their segments. At most searchSparse times as many pages are examined to find them.
	sparseShare  = 4
	searchSparse = 4
	firstGain    = 2 // after a flush of all of at least twice as many pages as are dirty now, the next flush is of all again
	// namedShare: if names alone keep a 64th of the file from reuse, they are folded away. That happens at most once for
	// each 16th of the live bytes that is written to the log (unnameShare).
	namedShare  = 64
	unnameShare = 16
	unevenShare = 16 // free space varies by about a 16th of RedoLimit from one checkpoint to the next
	// partTight: leaves of a part are filled up if the tree takes 28 twentieths of the bytes of its records. Puts in random
	// order, or of several goroutines in ascending order, leave 29 to 32. That is room which redo and dead
	// pages lack: with 32, 50 MB that four goroutines overwrote one record at a time exceeded twice their size and 32
	// MiB by a sixth, and a million records overwritten after a load in random order took a tenth more pages.
	partTight = 28
	// To fill leaves up, at most 4 times as many leaves as the part has pages are examined (fillLooked), and at most twice
	// as many are changed (fillWritten). So a part stays small even if the tree is large and little of it is dirty.
	fillLooked          = 4
	fillWritten         = 2
	partCheckpointShare = 48 // while flushes are in parts, a checkpoint is due when the log has taken a 48th of the live bytes
)

// partBytes is how many dirty bytes a part should cover.
func (p *pressure) partBytes() int64 { return cmp.Or(p.opts.PartBytes, partBytes) }

// parts returns in how many parts the dirty pages should be flushed; 1 is all at once. Token held.
func (p *pressure) parts() int {
	n := p.mayParts()
	// Nearly everything has to be written, as in a new file.
	if tree := p.tree.sizes(); n > 1 && p.opts.PartBytes == 0 && tree.must*logstore.PageSize*mustAll >= tree.dirty*(mustAll-1) {
		return 1
	}
	if n > 1 && p.log.bytes.Since() >= mostBehind*p.redoLimit() {
		return 1
	}
	if n > 1 && p.opts.PartBytes == 0 && p.growth.pages*logstore.PageSize*mustShare > p.tree.sizes().dirty && p.allFits(0) {
		return 1
	}
	return n
}

// allFits reports whether a flush of everything dirty, and of more pages, has room within the bound of the file. Token
// held.
func (p *pressure) allFits(more int64) bool {
	return p.store.FitsBound(max(0, withMargin(p.tree.sizes().dirty/logstore.PageSize+more)-p.room.held))
}

// growth is how fast commits make pages dirty that have to be written. Pages that are left of a load that has ended
// do not count: they go with the next part. Token held.
type growth struct {
	pages int64  // for each redo limit of redo, as of the last look
	asked int64  // pages obliged to be written so far, as of the last look: see override.Pages.Obliged
	redo  int64  // bytes of redo so far, as of the last look
	seq   uint64 // of the tree, as of the last look: entries that the tree lacked were not counted yet
	own   int64  // pages that background work has obliged since then
}

// noteGrowth counts the pages that have to be written, once for each part's worth of redo. Token held.
func (p *pressure) noteGrowth() {
	if p.tree.tables.merging() {
		return
	}
	g, asked, redo, seq := &p.growth, p.pages.Obliged(), p.log.bytes.Total()+p.log.waiting(), p.readers.views.Load()
	if since := redo - g.redo; seq != g.seq && since >= p.redoLimit()/mostParts {
		*g = growth{pages: (asked - g.asked - g.own) * p.redoLimit() / since, asked: asked, redo: redo, seq: seq}
	}
}

// mayParts returns in how many parts the dirty pages could be flushed. While leaves are left behind, even a small
// amount is flushed in parts: a flush of all would free all redo at once, and would first need room for a good part
// of it. Token held.
func (p *pressure) mayParts() int {
	dirty, worth := p.tree.sizes().dirty, p.partBytes()
	least := 2 * worth
	if p.log.bytes.Since() > p.log.bytes.SinceBase() {
		least = worth / goOnShare
	}
	// The file states it from the next checkpoint on, so this asks for it before so much is dirty: otherwise the first
	// flush would be of all, even if that made the file exceed its bound.
	stated := p.tree.leaves()*logstore.PageSize >= least && p.store.RedoBefore()
	if dirty < least || p.layered || !stated {
		return 1
	}
	return int(min(dirty*partShare/worth, mostParts))
}

// partDue reports whether the next of n parts should be flushed. Token held.
func (p *pressure) partDue(n int) bool {
	return n > 1 && p.log.bytes.SinceFlush()+p.log.waiting() >= p.redoLimit()/int64(n+partsAhead)
}

// firstPart reports whether the next part would be the first after a flush of all that was much larger than what is
// dirty now, as after a load. Then another flush of all is better: otherwise redo would start at the base of the last
// flush for a whole round of parts, and none of that flush's pages that overwrites leave dead could be reused in that
// time. The caller holds the token and checkpoints.mu.
func (fl *flusher) firstPart() bool {
	return fl.pages.DirtyBytes()/logstore.PageSize*firstGain <= fl.whole && fl.pressure.allFits(0)
}

// turnGrowth returns how many free pages future turns should find in addition to what the last one took. Parts free
// segments unevenly. And in the first round redo starts where the last flush of all began, until RedoLimit is
// reached, and what the parts write comes after that too: space given back now would be taken again, and zeroed once
// more. The caller holds the token and checkpoints.mu.
func (fl *flusher) turnGrowth() int64 {
	if fl.readers.ending.Load() {
		return 0
	}
	limit := fl.pressure.redoLimit()
	growth := limit / unevenShare
	if left := limit - fl.log.bytes.Since(); left > 0 && fl.pages.RedoStart() == fl.allBase {
		growth += left + int64(float64(fl.pages.DirtyBytes())*float64(left)/float64(limit))
	}
	return growth / logstore.PageSize
}

// partCheckpointDue reports whether the log since the last checkpoint is long enough for the next one, while flushes
// are in parts. Token held.
func (p *pressure) partCheckpointDue() bool {
	least := min(max(p.store.SpaceStats().LiveBytes/partCheckpointShare, minLogBytes), p.redoLimit())
	return p.sinceCheckpoint() >= least
}

// flushPart flushes the next of n parts. The caller holds checkpoints.mu.
func (fl *flusher) flushPart(n int) (err error) {
	defer fl.protect(&err)
	if err := fl.fillPart(n); err != nil {
		return err
	}
	part, err := fl.planPart(n)
	if err != nil {
		return fl.store.Fail(err)
	}
	fl.hand, fl.whole = part.Next, 0
	if err := fl.moveSparseLeaves(part); err != nil {
		return err
	}
	others, err := fl.moveSparsePages(part.Leaves()/sparseShare, fl.pressure.reserveWithin)
	if err != nil {
		return err
	}
	rename := func(b *override.Batch, parent logstore.PageID) (int, error) { return b.Rename(parent, part) }
	if err := fl.eachParent(part.Parents, rename, fl.pressure.reserveMore); err != nil {
		return err
	}
	var grown []logstore.PageID
	if err := fl.tree.withTree(func() error {
		grown = fl.pages.MustParents()
		return fl.Failed()
	}); err != nil {
		return err
	}
	if err := fl.eachParent(grown, (*override.Batch).RenameMust, fl.pressure.reserveMore); err != nil {
		return err
	}
	ahead, err := fl.reserveAhead(func() int64 { return fl.pages.PartPages(part) })
	if err != nil {
		return err
	}
	if err := fl.withBase(func() error {
		if err := fl.Failed(); err != nil {
			return err
		}
		fl.pages.Join(part, others)
		fl.pressure.lend(fl.pages.PartPages(part))
		if err := fl.log.provideFor(fl.pages.PartPages(part), ahead); err != nil {
			return err
		}
		if err := fl.log.writeRedo(); err != nil {
			return err
		}
		base, bytes := fl.tree.base()
		f := fl.pages.StartPart(base, fl.tree.records, part)
		if f == nil {
			return nil
		}
		return fl.finishFlush(f, bytes, fl.between)
	}); err != nil {
		return err
	}
	return fl.foldPart(part)
}

// fillPart fills up the leaves that the next of n parts begins with, if deletes have left the tree poorly filled:
// most of those leaves are about to be written anyway.
func (fl *flusher) fillPart(n int) error {
	if fl.lag > 0 { // during a load everything would have to be merged for it
		return nil
	}
	var leaves, writes int64
	if err := fl.tree.withMerged(func() error {
		if s := fl.store.SpaceStats(); fl.pressure.loose(s, partTight) {
			part := fl.pages.DirtyBytes()/logstore.PageSize/int64(n) + 1
			leaves, writes = min(fl.tree.leaves()/int64(n), part*fillLooked), part*fillWritten
		}
		return fl.Failed()
	}); err != nil {
		return err
	}
	most := int(min(leaves, writes, refillLeaves))
	for at := fl.hand; leaves > 0 && writes > 0; {
		r, err := fl.refillWith(at, most, btree.Spread, fl.pressure.reserveWithin)
		if err != nil || r.Next == nil { // no room, or a damaged leaf: the part does without
			return fl.Failed()
		}
		leaves -= int64(r.Leaves)
		writes -= int64(r.Written)
		at = r.Next
		fl.checkpoints.pace()
	}
	return nil
}

// foldPart makes parents name what a part has written by its addresses, so that the table which each checkpoint
// writes is short. It plans after the flush: names planned before may be gone, since what commits have removed has
// left the table with the flush. The new plan holds until the next flush, which needs checkpoints.mu: what is removed
// meanwhile stays in the table, and is not folded.
func (fl *flusher) foldPart(part *override.Part) error {
	var upper []logstore.PageID
	parents, err := fl.readers.planFolds(func(s *override.Snapshot) (parents []logstore.PageID, err error) {
		parents, upper, err = s.PlanPartFolds(part)
		return parents, err
	})
	if err != nil {
		return fl.store.Fail(err)
	}
	if err := fl.eachParent(parents, (*override.Batch).FoldClean, fl.pressure.reserveMore); err != nil {
		return err
	}
	return fl.eachParent(upper, (*override.Batch).FoldAlone, fl.pressure.reserveMore)
}

// sparseLimit returns the most live pages of a segment that the next part empties. It is larger the more of the file
// is useless. What only waits for checkpoints or readers does not count as useless, nor redo beyond a fifth of the
// live bytes: moving leaves frees none of that.
func sparseLimit(a logstore.Account, segment int64) int64 {
	useless := a.Sparse + min(a.Log, a.Live*sparseFrom/100)
	over := min(max(useless*100-a.Live*sparseFrom, 0), a.Live*(sparseTo-sparseFrom))
	return segment/sparseLeast + segment*(sparseLeast-2)/sparseLeast*over/max(a.Live*(sparseTo-sparseFrom), 1)
}

// moveSparseLeaves makes those leaves of the part dirty that would keep their old segments from reuse, the more of
// them the more of the file is useless. In the first round after a flush of all, redo starts at that flush's base
// until the round is over, so nothing written since is worth moving.
func (fl *flusher) moveSparseLeaves(part *override.Part) error {
	var leaves []logstore.PageID
	if err := fl.tree.withTree(func() error {
		since := uint64(math.MaxUint64)
		if start := fl.pages.RedoStart(); start == fl.allBase {
			since = start
		}
		leaves = fl.pages.SparseLeaves(part, sparseLimit(fl.store.Account(), int64(fl.store.SegmentPages())), since)
		return fl.Failed()
	}); err != nil {
		return err
	}
	_, err := fl.touchAll(leaves, (*override.Batch).Touch, fl.pressure.reserveWithin)
	return err
}

// moveSparsePages makes up to most pages in nearly empty segments dirty, and returns their addresses, for the part to
// take along; none if there is no room. These pages belong to other parts: a part ends in the middle of a segment,
// and the leaves of the next part stay there alone. With records of 1,000 bytes overwritten at random, their segments
// were most of the dead space: up to 31 of 35 MiB.
func (fl *flusher) moveSparsePages(most int, reserve reservation) (at []logstore.Addr, err error) {
	victims, _ := fl.store.Victims(fl.stuck, false)
	at = sparsePages(victims, int64(most), int64(fl.store.SegmentPages())/sparseLeast, fl.store.Contents)
	if room, err := fl.touchAll(at, (*override.Batch).Clean, reserve); err != nil || !room {
		return nil, err
	}
	return at, nil
}

// sparsePages returns the live pages of the emptiest victims: at most most pages, only of segments with at most full
// live pages, and none with value runs, for which the tree would have to be searched. It looks at no more than
// searchSparse times most pages, so that segments of runs do not keep it busy with every part.
func sparsePages(victims []logstore.Victim, most, full int64, contents func(segment uint32) (tree, runs []logstore.Addr, others int64)) (at []logstore.Addr) {
	looked := int64(0)
	for _, v := range victims {
		if looked += v.Live; v.Live > full || int64(len(at))+v.Live > most || looked > most*searchSparse {
			break
		}
		tree, runs, others := contents(v.Segment)
		if len(runs) == 0 && others == 0 {
			at = append(at, tree...)
		}
	}
	return at
}

// planPart plans the next of n parts, from what is dirty in the tree that will be flushed.
func (fl *flusher) planPart(n int) (*override.Part, error) {
	var leaves int64
	if err := fl.withBase(func() error {
		leaves = fl.pages.DirtyBytes()/logstore.PageSize/int64(n) + 1
		return nil
	}); err != nil {
		return nil, err
	}
	slot := fl.readers.registry.Acquire(&fl.readers.views)
	defer slot.Release()
	snap := fl.pages.At(slot.Seq())
	return snap.PlanPart(fl.hand, int(leaves))
}

// parts is pressure.parts for a caller without the token.
func (fl *flusher) parts() (n int, err error) {
	err = fl.withBase(func() error {
		n = fl.pressure.parts()
		return fl.Failed()
	})
	return n, err
}

// flushParts flushes what is dirty in parts, with checkpoints in between, so that each part can use the room that
// earlier ones have freed. The parts are equal: if each took a 32nd of what is left, a third would be left behind the last
// one, and the flush of all that follows would need room for it at once. What is dirty after the last part but one is
// left to a flush of all. The caller holds checkpoints.mu.
func (fl *flusher) flushParts() error {
	for left := mostParts; left > 1; left-- {
		n, err := fl.parts()
		if err != nil || n == 1 {
			return err
		}
		if err := fl.flushNext(min(n, left), false); err != nil {
			return err
		}
	}
	return nil
}

// flushNext flushes the next of n parts, and checkpoints if the log has become long enough, or if must is set. The
// caller holds checkpoints.mu.
func (fl *flusher) flushNext(n int, must bool) error {
	if err := fl.flushPart(n); err != nil {
		return err
	}
	if err := fl.unname(); err != nil {
		return err
	}
	due, growth := false, int64(0)
	if err := fl.tree.withTree(func() error {
		due, growth = must || fl.pressure.partCheckpointDue(), fl.turnGrowth()
		return nil
	}); err != nil || !due {
		return err
	}
	fl.checkpoints.turn.ended(fl.store.Counters().Pages)
	fl.checkpoints.turn.growth = growth
	return fl.checkpoints.checkpointTwice()
}

// unname folds the parents of pages that the cleaner has moved out of segments, if many segments without live pages
// are kept only by the names of such pages. Otherwise the names would keep them until a part comes by. unname goes
// through all inner nodes, so it runs only once for each unnameShare-th of the live bytes that is written.
func (fl *flusher) unname() (err error) {
	defer fl.protect(&err)
	s, written := fl.store.SpaceStats(), fl.store.Counters().Pages
	if int64(written-fl.unnamed)*logstore.PageSize*unnameShare < s.LiveBytes || fl.store.Account().Named*logstore.PageSize*namedShare < s.FileBytes {
		return nil
	}
	fl.unnamed = written
	return fl.unpin()
}
