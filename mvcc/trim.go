package mvcc

import (
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
)

// Space comes back in background work. What is dead is used again once two checkpoints are past, so where much waits for that a second
// one follows the first at once. What the log then does not need goes back to the file system: see logstore.Condemn. It needs free space
// for a turn, from checkpoint to checkpoint; one that turns over steadily so keeps what it uses again.

const (
	trimSegments = 4               // least to give back, beside an eighth of a turn
	worthShare   = 8               // an eighth of the file that only waits for checkpoints makes one due,
	againShare   = 24              // a 24th is enough for a second one right behind another,
	worthLeast   = 8               // but not less than 8 segments,
	spareShare   = 4               // no more is kept free than a quarter of what lives,
	spareRedo    = 1               // or the redo limit
	trimPause    = time.Second     // nor more often than that
	cutGain      = 4               // times what is dirty: what a flush of all has to let go, to be made for that
	idlePause    = 2 * time.Second // without an eighth of a turn, after which turns are taken to have become short
)

// turn remembers how much the log takes from one flush and checkpoint to the next. If the next one takes more, the condemned come back
// as they are. Guarded by checkpoints.mu.
type turn struct {
	began  uint64    // pages appended before it
	pages  int64     // that the last one took
	growth int64     // pages that those to come need beside: see sweepGrowth
	at     time.Time // of the last checkpoint
}

func (t *turn) ended(appended uint64) {
	t.set(int64(appended - t.began))
	t.began = appended
}

// set takes turns to be so long from now on.
func (t *turn) set(pages int64) { t.pages, t.growth = pages, 0 }

// spare returns how many pages are kept free for the turns to come: what the last one took, and what the log grows by, but no more than a
// quarter of what lives or twice RedoLimit. The turns of a load take more, and grow the file again by the difference.
func (k *checkpointer) spare() int64 {
	t := &k.turn
	return min(t.pages+t.growth, max(k.store.SpaceStats().LiveBytes/spareShare, spareRedo*k.pressure.shareOfBound())/logstore.PageSize)
}

// idle reports whether the log has become slow.
func (t *turn) idle(appended uint64) bool {
	return time.Since(t.at) >= idlePause && int64(appended-t.began) < t.pages/8
}

// checkpointTwice follows a flush. The caller holds checkpoints.mu.
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
	return k.Failed() // what is left undone is no error, a failed write is
}

func (f *file) worthIt(bytes int64) bool { return f.worth(bytes, worthShare) }

// ownBytes returns the bytes of the file without those that only readers hold.
func (f *file) ownBytes() int64 { return f.store.SpaceStats().FileBytes - f.store.HeldBytes() }

// worth reports whether bytes are such a share of ownBytes, and not too few.
func (f *file) worth(bytes, share int64) bool {
	return bytes >= max(f.ownBytes()/share, worthLeast*int64(f.store.SegmentPages())*logstore.PageSize)
}

// trim gives back what the log does not need. It follows a checkpoint; the caller holds checkpoints.mu. What cannot be given back stays.
func (k *checkpointer) trim() {
	least := max(trimSegments, int(k.turn.pages/8/int64(k.store.SegmentPages())))
	if k.readers.ending.Load() {
		least = 1
	}
	k.trimFrom(least)
}

// trimFrom is trim if there are at least the given number of segments to condemn.
func (k *checkpointer) trimFrom(least int) {
	t := &k.turn
	t.at = time.Now()
	spare := k.spare()
	if s, bound := k.store.SpaceStats(), k.store.Bound(); bound > 0 && s.FileBytes > bound { // as where records are deleted: no free space is kept beyond it
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

// trimAtClose leaves no more of a file behind than is worth it: nothing says when there will be another turn.
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

// trimDue reports whether much of the file would be given back if there was a checkpoint, and whether it takes a flush as well. The
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

// cutDue reports whether much would be given back if all that is dirty was flushed, so that redo starts anew, and little has to be written
// for that. Behind a load or many deletes redo can be short in bytes and long in segments: in those lies what they have written and let die
// since. Where commits write little from then on, no flush would be due for long. The caller holds the token and checkpoints.mu.
func (k *checkpointer) cutDue() bool {
	if k.trimmedLately() {
		return false
	}
	old := k.store.Outdated()
	return k.pressure.unwrittenBytes()*cutGain <= old && k.worthIt(k.trimGain()+old)
}

func (k *checkpointer) trimmedLately() bool {
	return time.Since(k.turn.at) < trimPause && !k.opts.Manual
}

// trimGain returns the bytes that wait for nothing but checkpoints.
func (k *checkpointer) trimGain() int64 {
	return k.store.Returning() + k.store.Leaving() + k.store.Thinning() + k.store.Surplus(k.spare())
}
