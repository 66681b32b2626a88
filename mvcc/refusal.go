package mvcc

import "time"

// A put that is refused on a full file has tried to make room before, with 25 to 100 syncs. The next put would do the
// same in vain. So puts that need as many pages are refused at once, until there is another commit, which may have
// deleted or replaced something, or until refusedFor has passed.
//
// A put that finds the room that it needs is never refused: before it comes here, it has tried to reserve its pages. So
// only another attempt to make room is delayed. Deletes, and puts that only replace, always make that attempt, because
// they may use pages that other puts may not.
//
// If readers hold dead pages, their end makes room. So then a refusal is noted only if a commit has waited for the oldest
// of them in vain, and counts while that one has not ended. Nor do later commits wait for it again, unless there are
// other readers to ask. Otherwise each put beside an idle transaction would wait for lastWait.
//
// A refusal describes the last attempt that was in vain. It does not change.
type refusal struct {
	pages     int64     // that the commit needed
	committed uint64    // Seq of the last batch of commits before the attempt
	at        time.Time // end of the attempt
	awaited   uint64    // as in admission; 0: readers held nothing
}

// refusedFor is how long a refusal counts. Larger: puts may be refused for longer although background work has made
// another attempt worthwhile. Smaller: a program that puts again and again writes more in vain.
const refusedFor = time.Second

// stillFull reports whether makeRoom would be in vain for a commit.
func (a *admission) stillFull(w *roomWanted) bool {
	r := a.refused.Load()
	return r != nil && !w.deletes && !w.full && w.pages >= r.pages && a.marks.committed.Load() == r.committed &&
		(r.awaited == 0 || a.readers.registry.ReadersBelow(r.awaited, 0)) && time.Since(r.at) < refusedFor
}

// waitsInVain reports whether the oldest reader is the one for which a commit has waited in vain, and all others below
// the given Seq were asked to end, too.
func (a *admission) waitsInVain(below uint64) bool {
	next, ok := a.readers.registry.Oldest()
	return a.awaited.Load() == a.tree.horizon.Load()+1 && !(ok && next.Seq() < below)
}

// noteRefusal notes that makeRoom was in vain for a commit. committed is as in refusal. With Options.Manual it does
// nothing: tests are to find the same at any pace.
func (a *admission) noteRefusal(w *roomWanted, committed uint64) {
	if w.deletes || w.full || a.opts.Manual {
		return
	}
	awaited := uint64(0)
	if a.store.HeldBytes() > 0 {
		if awaited = a.awaited.Load(); awaited != a.tree.horizon.Load()+1 {
			return
		}
	}
	a.refused.Store(&refusal{w.pages, committed, time.Now(), awaited})
}
