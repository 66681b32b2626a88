package mvcc

import "time"

// A sync waits until the device has everything that was written before it, including what background work has
// written. So background work pauses between its parts to let commits through, and if commits are synced by the
// clock, it syncs what it has written before that gets too much.
//
//   - Durable: a pause after each part, unless commits take much of the log, or nothing runs in the background
//     (Options.Manual).
//   - Buffered: background work syncs, without the token, when a sync of the pages that it has written may take a
//     syncShare-th of FlushInterval. So the sync of a tick waits for no more than that, or twice that if another sync
//     has just begun.
//   - That number of pages is adapted to earlier background syncs: halved after one that took longer, doubled after
//     one that took less than half of that, between syncLeast and syncMost.
//
// Rejected: let the device start with each part and not wait for it. Background work writes to the page cache many
// times as fast as a device writes, so the sync of the next tick would have as much to wait for.
type pacing struct {
	paused uint64 // pages appended at the last pause
	ahead  int64  // pages that may be written and not synced; 0: syncLeast
}

const (
	pauseBetween = 200 * time.Microsecond
	pauseBelow   = 64 + 16 // pages written from one pause to the next: a part, and what commits add to it

	// syncShare: an interval, a sync under way and the sync of the tick take at most one and a half intervals. A
	// larger share makes commits wait longer; with a smaller one background work syncs more often than needed, and
	// each sync costs a command to the device.
	syncShare = 4
	syncLeast = 1 << 20 / 4096  // pages: a device that takes 12 ms for them writes 80 MB per second
	syncMost  = 64 << 20 / 4096 // pages: for syncs that take no time, as on tmpfs
)

// pace lets commits through between the parts of background work, so that a sync has few pages of it to wait for. It
// makes no pause while commits take much of the log: these wait for their own pages, and what they write during a
// flush makes the file larger. The caller holds checkpoints.mu and not the token.
func (k *checkpointer) pace() {
	k.step(StepBetween)
	k.growAhead() // a flush may take longer than commits have room for
	p := &k.pacing
	counters := k.store.Counters()
	heavy := counters.Pages-p.paused > pauseBelow
	p.paused = counters.Pages
	switch {
	case k.opts.Durability == Durable && k.readers.active.Load() > 0 && !heavy && !k.opts.Manual:
		time.Sleep(pauseBetween)
	case k.opts.Durability == Buffered && k.store.UnsyncedPages() >= max(p.ahead, syncLeast):
		if k.store.Sync() == nil { // else the store is poisoned, and the next step says so
			k.marks.publishDurable()
			// The time of all syncs since the pages were counted: if the sync of a tick has just written them,
			// nothing was left to do here.
			p.synced(k.store.Counters().SyncTime-counters.SyncTime, k.opts.FlushInterval)
		}
	}
}

// synced adapts ahead to the time that a background sync took.
func (p *pacing) synced(took, interval time.Duration) {
	switch most := interval / syncShare; {
	case took > most:
		p.ahead /= 2
	case took < most/2:
		p.ahead *= 2
	}
	p.ahead = max(syncLeast, min(p.ahead, syncMost))
}
