package mvcc

import (
	"cmp"
	"math"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Where much is dirty it is flushed a part of the tree at a time, in key order and round and round. The images that a part leaves then lie
// together, where the round before has written them, so their segments come back whole, after two checkpoints and without cleaning. Of all
// at once the file would have to hold two, and the log of two turns: the tree, and what is being written.
//
// Each leaf is written as often as by flushes of all, once for RedoLimit of redo, and a little less: it is as many parts as the redo is
// divided into. What is left behind keeps the redo start back; so redo is always about RedoLimit long, and the parts come evenly instead of
// in bursts. A page that has to be written (see override's dirtyPages) goes with the next part wherever it lies. Where many have to, as in
// a tree that grows everywhere, parts would write those again and again, and all is flushed at once.
const (
	mostParts   = 32
	partBytes   = 4 << 20 // of dirty pages: all is flushed at once where less than twice that is dirty,
	partShare   = 4       // and a part has a quarter of it at least,
	goOnShare   = 2       // or a half of it is dirty and leaves are behind
	mustShare   = 4       // all is flushed at once if commits ask for more than a quarter of what is dirty
	mustAll     = 4       // or if three quarters have to be written: that is a flush of all, by which redo starts anew
	mostBehind  = 3       // times RedoLimit: if redo has got so long all the same, all is flushed, and nothing is behind
	partsAhead  = 2       // parts of redo that come while one is written
	lonelyFrom  = 20      // hundredths of what lives that are of no use, from which clean leaves move out of fuller and fuller segments,
	lonelyTo    = 35      // and from which on out of nearly full ones
	lonelyLeast = 8       // segments of which no more than an 8th lives are emptied in any case
	strayShare  = 4       // of the leaves of a part, a quarter may be others that are alone in their segments
	searchStray = 4       // times as many pages, at most, are looked at for that
	firstGain   = 2       // times what is dirty: pages of a flush of all, behind which the first part is another one
	namedShare  = 64      // a 64th of the file that names keep from reuse has them folded away,
	unnameShare = 16      // once in a 16th of what lives written to the log
	unevenShare = 16      // of RedoLimit, by which the free space differs from one checkpoint to the next
	partTight   = 16      // leaves of a part are filled up where the tree takes 16 tenths of the bytes of its records; 14 and a half are usual
	fillLooked  = 4       // times the pages of the part are looked at for that,
	fillWritten = 2       // and as many times changed: what is dirty stays in proportion, also where the tree is large and little of it is dirty
	sweepShare  = 48      // with parts a checkpoint is due when the log has taken a 48th of what lives
)

// partBytes is what a part is worth.
func (p *pressure) partBytes() int64 { return cmp.Or(p.opts.PartBytes, partBytes) }

// parts returns the number of parts in which to flush what is dirty; 1 is all at once. Token held.
func (p *pressure) parts() int {
	n := p.mayParts()
	if tree := p.tree.sizes(); n > 1 && p.opts.PartBytes == 0 && tree.must*logstore.PageSize*mustAll >= tree.dirty*(mustAll-1) { // as in a new file
		return 1
	}
	if n > 1 && p.log.bytes.Since() >= mostBehind*p.redoLimit() {
		return 1
	}
	if n > 1 && p.opts.PartBytes == 0 && p.growth.pages*logstore.PageSize*mustShare > p.tree.sizes().dirty && p.allFits() {
		return 1
	}
	return n
}

// allFits reports whether a flush of all that is dirty has room within the bound of the file. Token held.
func (p *pressure) allFits() bool {
	return p.store.FitsBound(max(0, withMargin(p.tree.sizes().dirty/logstore.PageSize)-p.room.held))
}

// growth tells how fast commits make pages dirty that have to be written. Those that are left of a load that has ended count no more: they
// go with the next part. Token held.
type growth struct {
	pages int64  // in RedoLimit of redo, as of the last look
	asked int64  // by then: see override.Pages.Obliged
	redo  int64  // bytes by then
	seq   uint64 // that the tree had then: what it lacked has asked for nothing yet
	own   int64  // asked by background work since then
}

// noteGrowth counts the pages that have to be written, once for each part's worth of redo.
func (p *pressure) noteGrowth() {
	if p.tree.tables.merging() {
		return
	}
	g, asked, redo, seq := &p.growth, p.pages.Obliged(), p.log.bytes.Total()+p.log.waiting(), p.readers.views.Load()
	if since := redo - g.redo; seq != g.seq && since >= p.redoLimit()/mostParts {
		*g = growth{pages: (asked - g.asked - g.own) * p.redoLimit() / since, asked: asked, redo: redo, seq: seq}
	}
}

// mayParts returns the number of parts in which what is dirty could be flushed. While leaves are left behind, little is flushed in parts too:
// a flush of all would let go all redo at once, and need the room of a good part of it before. Token held.
func (p *pressure) mayParts() int {
	dirty, worth := p.tree.sizes().dirty, p.partBytes()
	least := 2 * worth
	if p.log.bytes.Since() > p.log.bytes.SinceBase() {
		least = worth / goOnShare
	}
	if dirty < least || p.layered || !p.store.RedoBefore() {
		return 1
	}
	return int(min(dirty*partShare/worth, mostParts))
}

// partDue reports whether the next of n parts should be flushed. Token held.
func (p *pressure) partDue(n int) bool {
	return n > 1 && p.log.bytes.SinceFlush()+p.log.waiting() >= p.redoLimit()/int64(n+partsAhead)
}

// firstPart reports whether the next part would be the first behind a flush of all that was much larger than what is dirty now, as behind a load.
// Then another flush of all is better: redo would start at the base of the last one for a whole round of parts, and none of the pages that it
// has written, and that overwrites let die, could be used again in that time. The caller holds the token and checkpoints.mu.
func (fl *flusher) firstPart() bool {
	return fl.pages.DirtyBytes()/logstore.PageSize*firstGain <= fl.whole && fl.pressure.allFits()
}

// sweepGrowth returns how many free pages the turns to come should find beside what the last one took. Segments come back from parts
// unevenly. And in the first round redo starts where the last flush of all began until RedoLimit is reached, and what the parts write
// lies behind that as well: space given back by now would be taken again, and written with zeros once more. The caller holds the token and
// checkpoints.mu.
func (fl *flusher) sweepGrowth() int64 {
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

// sweepDue reports whether the log since the last checkpoint is long enough for the next one, where flushes are by part. Token held.
func (p *pressure) sweepDue() bool {
	least := min(max(p.store.SpaceStats().LiveBytes/sweepShare, minLogBytes), p.redoLimit())
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
	if err := fl.moveLoners(part); err != nil {
		return err
	}
	others, err := fl.moveStragglers(part.Leaves()/strayShare, fl.pressure.reserveWithin)
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

// fillPart fills up the leaves that the next of n parts begins with, where deletes have left those of the tree poorly filled: they are about
// to be written, or most of them.
func (fl *flusher) fillPart(n int) error {
	if fl.lag > 0 { // a load, for which all would have to be merged
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
		if err != nil || r.Next == nil { // there is no room, or a leaf is damaged: the part may do without
			return fl.Failed()
		}
		leaves -= int64(r.Leaves)
		writes -= int64(r.Written)
		at = r.Next
		fl.checkpoints.pace()
	}
	return nil
}

// foldPart names what a part has written by its addresses, so that the table that each checkpoint writes is short. No name that was planned
// with before the flush is of use now: what commits have removed since then has left the table with it. From here on to the next flush,
// which needs checkpoints.mu, the plan holds: what is removed meanwhile stays in the table, and is not folded.
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

// lonely returns how many live pages a segment may keep behind a part that comes by: the more, the more lies beside what lives. What only
// waits for checkpoints or readers does not count, nor more of the redo than a fifth of what lives: moving leaves gains none of that.
func lonely(a logstore.Account, segment int64) int64 {
	useless := a.Sparse + min(a.Log, a.Live*lonelyFrom/100)
	over := min(max(useless*100-a.Live*lonelyFrom, 0), a.Live*(lonelyTo-lonelyFrom))
	return segment/lonelyLeast + segment*(lonelyLeast-2)/lonelyLeast*over/max(a.Live*(lonelyTo-lonelyFrom), 1)
}

// moveLoners has the part take along what would keep its old segments from reuse: the more, the more of the file is of no use. In the first
// round behind a flush of all redo starts at its base until the round is over, so nothing that was written since is worth moving.
func (fl *flusher) moveLoners(part *override.Part) error {
	var loners []logstore.PageID
	if err := fl.tree.withTree(func() error {
		since := uint64(math.MaxUint64)
		if start := fl.pages.RedoStart(); start == fl.allBase {
			since = start
		}
		loners = fl.pages.Loners(part, lonely(fl.store.Account(), int64(fl.store.SegmentPages())), since)
		return fl.Failed()
	}); err != nil {
		return err
	}
	_, err := fl.touchAll(loners, (*override.Batch).Touch, fl.pressure.reserveWithin)
	return err
}

// moveStragglers makes up to most pages dirty that live in nearly empty segments, and returns where they lie, for the part to take along; none
// where there is no room. They are of other parts: a part ends amid a segment, and the leaves of the next one stay there alone. With records of
// 1,000 bytes overwritten at random their segments were most of what lay dead beside what lives: up to 31 of 35 MiB.
func (fl *flusher) moveStragglers(most int, reserve reservation) (at []logstore.Addr, err error) {
	victims, _ := fl.store.Victims(fl.stuck, false)
	at = stragglers(victims, int64(most), int64(fl.store.SegmentPages())/lonelyLeast, fl.store.Contents)
	if room, err := fl.touchAll(at, (*override.Batch).Clean, reserve); err != nil || !room {
		return nil, err
	}
	return at, nil
}

// stragglers returns what lives in the emptiest of the victims, most pages of those with no more than full ones, and no value runs: for
// these the tree would be searched. So that segments of runs do not keep it busy with every part, it does not look far for others.
func stragglers(victims []logstore.Victim, most, full int64, contents func(segment uint32) (tree, runs []logstore.Addr, others int64)) (at []logstore.Addr) {
	looked := int64(0)
	for _, v := range victims {
		if looked += v.Live; v.Live > full || int64(len(at))+v.Live > most || looked > most*searchStray {
			break
		}
		tree, runs, others := contents(v.Segment)
		if len(runs) == 0 && others == 0 {
			at = append(at, tree...)
		}
	}
	return at
}

// planPart plans the next part of n, by what is dirty in the tree that the part will be of.
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

// parts is pressure.parts for who does not have the token.
func (fl *flusher) parts() (n int, err error) {
	err = fl.withBase(func() error {
		n = fl.pressure.parts()
		return fl.Failed()
	})
	return n, err
}

// flushParts flushes what is dirty by parts, with checkpoints between, so that each can have the room that those before it have left. What
// is dirty after that, a whole flush takes. The caller holds checkpoints.mu.
func (fl *flusher) flushParts() error {
	for range mostParts {
		n, err := fl.parts()
		if err != nil || n == 1 {
			return err
		}
		if err := fl.sweep(n, false); err != nil {
			return err
		}
	}
	return nil
}

// sweep flushes the next of n parts, and checkpoints if the log has become long enough, or if it must. The caller holds checkpoints.mu.
func (fl *flusher) sweep(n int, must bool) error {
	if err := fl.flushPart(n); err != nil {
		return err
	}
	if err := fl.unname(); err != nil {
		return err
	}
	due, growth := false, int64(0)
	if err := fl.tree.withTree(func() error {
		due, growth = must || fl.pressure.sweepDue(), fl.sweepGrowth()
		return nil
	}); err != nil || !due {
		return err
	}
	fl.checkpoints.turn.ended(fl.store.Counters().Pages)
	fl.checkpoints.turn.growth = growth
	return fl.checkpoints.checkpointTwice()
}

// unname folds parents of what the cleaner has moved out of segments in which nothing lives any more, if those are many: else their names
// would keep them until a part comes by. It goes through all inner nodes, so not more often than once in some share of a round.
func (fl *flusher) unname() (err error) {
	defer fl.protect(&err)
	s, written := fl.store.SpaceStats(), fl.store.Counters().Pages
	if int64(written-fl.unnamed)*logstore.PageSize*unnameShare < s.LiveBytes || fl.store.Account().Named*logstore.PageSize*namedShare < s.FileBytes {
		return nil
	}
	fl.unnamed = written
	plan, err := fl.drainPlan()
	if err != nil {
		return err
	}
	return fl.eachParent(plan, (*override.Batch).FoldClean, fl.pressure.reserveMore)
}
