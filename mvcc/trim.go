package mvcc

import (
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
)

// Background work gives space back. Dead segments can be reused after two checkpoints; if much waits for that, a
// second checkpoint follows the first at once. What the log does not need after that goes back to the file system:
// see logstore.Condemn. The log needs free space for a turn, from one checkpoint to the next; a log with steady turns
// keeps what it reuses.

const (
	trimSegments = 4 // space goes back only if it is at least 4 segments and an eighth of a turn
	// Space that only waits for checkpoints makes a checkpoint due if it is an eighth of the file (worthShare), and a
	// second checkpoint right after the first if it is a 24th (againShare); in both cases only if it is at least 8
	// segments (worthLeast).
	worthShare = 8
	againShare = 24
	worthLeast = 8
	// No more space is kept free than a quarter of the live bytes (spareShare) or the redo limit (spareRedo times),
	// whichever is more.
	spareShare = 4
	spareRedo  = 1
	trimPause  = time.Second     // least time between two checkpoints that only give space back
	cutGain    = 4               // to free space, everything dirty is flushed if that frees at least 4 times as much
	idlePause  = 2 * time.Second // if the log takes less than an eighth of a turn in this time, the log is idle, and turns count as short
)

// turn notes how much the log takes from one flush and checkpoint to the next. If the next turn takes more, condemned
// segments come back as they are. Guarded by checkpoints.mu.
type turn struct {
	began  uint64    // pages appended before it
	pages  int64     // pages that the last one took
	growth int64     // pages that turns to come need in addition: see turnGrowth
	at     time.Time // when the last checkpoint was trimmed
}

func (t *turn) ended(appended uint64) {
	t.set(int64(appended - t.began))
	t.began = appended
}

// set sets the length of the turns to come.
func (t *turn) set(pages int64) { t.pages, t.growth = pages, 0 }

// spare returns how many pages are kept free for the turns to come: what the last one took and what the log grows by,
// but at most a quarter of the live pages or the redo limit, whichever is larger. The turns of a load take more, and
// grow the file again by the difference.
func (k *checkpointer) spare() int64 {
	t := &k.turn
	return min(t.pages+t.growth, max(k.store.SpaceStats().LiveBytes/spareShare, spareRedo*k.pressure.shareOfBound())/logstore.PageSize)
}

// idle reports whether the log has become slow.
func (t *turn) idle(appended uint64) bool {
	return time.Since(t.at) >= idlePause && int64(appended-t.began) < t.pages/8
}

// checkpointTwice follows a flush: it writes a checkpoint, a second one if that returns much, and gives space back.
// The caller holds checkpoints.mu.
func (k *checkpointer) checkpointTwice() error {
	if err := k.checkpoint(); err != nil {
		return err
	}
	if k.worth(k.store.Returning(), againShare) {
		if err := k.checkpoint(); err != nil {
			return err
		}
	}
	k.trim()
	return k.Failed() // what is left undone is no error; a failed write is
}

func (f *file) worthIt(bytes int64) bool { return f.worth(bytes, worthShare) }

// ownBytes returns the bytes of the file except those that only readers hold.
func (f *file) ownBytes() int64 { return f.store.SpaceStats().FileBytes - f.store.HeldBytes() }

// worth reports whether bytes are at least a share-th of ownBytes, and at least worthLeast segments.
func (f *file) worth(bytes, share int64) bool {
	return bytes >= max(f.ownBytes()/share, worthLeast*int64(f.store.SegmentPages())*logstore.PageSize)
}

// trim gives back what the log does not need. It follows a checkpoint. The caller holds checkpoints.mu. What cannot
// be given back stays.
func (k *checkpointer) trim() {
	least := max(trimSegments, int(k.turn.pages/8/int64(k.store.SegmentPages())))
	if k.readers.ending.Load() {
		least = 1
	}
	k.trimFrom(least)
}

// trimFrom is trim, if at least the given number of segments can be condemned.
func (k *checkpointer) trimFrom(least int) {
	t := &k.turn
	t.at = time.Now()
	if k.pressure.crowd.backups.young() {
		return
	}
	spare := k.spare()
	// Beyond the bound, as after deletes, no free space is kept.
	if s, bound := k.store.SpaceStats(), k.store.Bound(); bound > 0 && s.FileBytes > bound {
		spare, least = max(0, min(spare, (s.FreeBytes-(s.FileBytes-bound))/logstore.PageSize)), 1
	}
	k.store.Condemn(spare, least)
	k.store.Thin()
	for more := true; more; k.pace() {
		var err error
		if more, err = k.store.GiveBack(); err != nil {
			k.post(event.Event{Kind: event.Background, What: "giving back space", Err: err})
			break
		}
	}
}

// trimAtClose makes the file as short as is worth the writing: nothing says when there will be another turn.
func (k *checkpointer) trimAtClose() error {
	for range 8 {
		k.turn.set(0)
		gain := k.store.Returning() + k.store.Leaving() + k.store.Surplus(0)
		if gain < int64(k.store.SegmentPages())*logstore.PageSize {
			break
		}
		if err := k.checkpointTwice(); err != nil {
			return err
		}
	}
	return nil
}

// trimDue reports whether a checkpoint would give much of the file back, and whether a flush must precede it. The
// caller holds the token and checkpoints.mu.
func (k *checkpointer) trimDue() (due, flush bool) {
	t := &k.turn
	if k.trimmedLately() {
		return false, false
	}
	if appended := k.store.Counters().Pages; t.idle(appended) {
		t.set(int64(appended - t.began))
	}
	gain := k.trimGain()
	if k.worthIt(gain) {
		return true, false
	}
	due = k.worthIt(gain + k.pages.Dying()*logstore.PageSize)
	return due, due
}

// cutDue reports whether a flush of everything dirty, after which redo is empty, would give much back for little
// writing. After a load or many deletes redo can be short in bytes and yet span many segments, with what those
// commits have written and since let die. If commits write little from then on, no flush would be due for long. The
// caller holds the token and checkpoints.mu.
func (k *checkpointer) cutDue() bool {
	if k.trimmedLately() {
		return false
	}
	old := k.store.Outdated()
	return k.pressure.unwrittenBytes()*cutGain <= old && k.worthIt(k.trimGain()+old)
}

// trimmedLately reports whether space was given back just now, or is not given back for the sake of a backup.
func (k *checkpointer) trimmedLately() bool {
	return time.Since(k.turn.at) < trimPause && !k.opts.Manual || k.pressure.crowd.backups.young()
}

// trimGain returns the bytes that only wait for checkpoints.
func (k *checkpointer) trimGain() int64 {
	return k.store.Returning() + k.store.Leaving() + k.store.Thinning() + k.store.Surplus(k.spare())
}
