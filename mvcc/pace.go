package mvcc

import "time"

// A sync waits until the device has all that was written before it, also what background work has written. So background work lets commits
// through between its parts, and where commits are synced by the clock, it syncs what it has written itself before that is too much.
//
//   - Durable: a pause behind each part, unless commits take much of the log.
//   - Buffered: background work syncs, without the token, once a sync of the pages that it has written may take a syncShare-th of
//     FlushInterval. So the sync of a tick waits for no more than that, twice if another sync has just begun.
//   - The number of pages follows from the background syncs before: half as many after one that took longer, twice as many after one that took
//     less than half of that, from syncLeast to syncMost.
//
// Rejected: to have the device begin with each part and not wait for it. Background work writes to the page cache many times as fast as a
// device writes, so the sync of the next tick would find as much to wait for.
type pacing struct {
	paused uint64 // pages appended at the last pause
	ahead  int64  // pages that may be written and not synced; 0: syncLeast
}

const (
	pauseBetween = 200 * time.Microsecond
	pauseBelow   = 64 + 16 // pages written from one pause to the next: a part, and what commits add to it

	// syncShare: an interval, a sync under way and the sync of the tick are one and a half intervals. A larger share has commits wait longer;
	// a smaller one has background work sync more often than needed, of which each costs a command to the device.
	syncShare = 4
	syncLeast = 1 << 20 / 4096  // pages: a device that takes 12 ms for them writes 80 MB a second
	syncMost  = 64 << 20 / 4096 // pages: where syncs take no time, as on tmpfs
)

// pace lets commits through between the parts of background work, so that a sync has few pages of it to wait for. It makes no pause while
// commits take much of the log: they wait for their own pages, and what they write while a flush is in flight makes the file larger. The
// caller holds checkpoints.mu, and not the token.
func (k *checkpointer) pace() {
	k.step(StepBetween)
	k.growAhead() // a flush may take longer than commits have room for
	p := &k.pacing
	counters := k.store.Counters()
	heavy := counters.Pages-p.paused > pauseBelow
	p.paused = counters.Pages
	switch {
	case k.opts.Durability == Durable && k.readers.active.Load() > 0 && !heavy:
		time.Sleep(pauseBetween)
	case k.opts.Durability == Buffered && k.store.UnsyncedPages() >= max(p.ahead, syncLeast):
		if k.store.Sync() == nil { // else the store is poisoned, and the next step says so
			k.marks.publishDurable()
			// The time of all syncs since the pages were counted: if the sync of a tick has just written them, there was nothing left to do here.
			p.synced(k.store.Counters().SyncTime-counters.SyncTime, k.opts.FlushInterval)
		}
	}
}

// synced notes how long a background sync took.
func (p *pacing) synced(took, interval time.Duration) {
	switch most := interval / syncShare; {
	case took > most:
		p.ahead /= 2
	case took < most/2:
		p.ahead *= 2
	}
	p.ahead = max(syncLeast, min(p.ahead, syncMost))
}
