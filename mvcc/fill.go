package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

// A group takes whole pages. One whose redo fills little of its last page costs that page, and brings the next flush as much nearer as a
// full one: redo is counted in pages. So a batch leaves what would not fill its last page to the next batch, the newest commits first, which
// wait one sync longer.
//
// Batches come the faster the smaller they are, where most of the time goes to the processors. Where it goes to the device, committers
// that are a few more than a page has room for would have each sync serve a page full, and not all of them. Then only half a page or less
// is left, and the next batch takes all.
//
//   - Who is left has not been drained, as far as anyone can see: it is undrained before the batch gets its Seq, and who gives up the token
//     finds it in the list and wakes the newest one with the token, as if it had come later.
//   - None is left twice: a page has room for all who are left, and they are the oldest of the next batch, which takes a page full or all.
//   - The leader's own commit is not left: it returns when its batch is settled. It is none of the newest, as others come while it yields.
//     Where groups are synced beside the next one it is, and may be left: then its committer waits as the others do.
//   - None is left of a batch whose newest commit nobody waits for. Such commits come as others are called back, all at once: with 50 of 100
//     bytes under way each sync covered a page full of them, 34, and now 48.
//   - What counts is what the commits take without those of the same keys. So a batch of hot keys may leave some for nothing.
const (
	fillPages = 4 // a longer group loses little with its last page
	fillShare = 2 // of the last page, where the device is slow
	gapShare  = 8 // of a page: less is gained than the wait costs where large commits would leave a larger gap, or the last page has no larger one
)

// fill leaves the newest of the commits drained to the next batch, if that is worth it, and returns the others, with own among them if it was
// drained. slow is whether the device is, which does not count where groups are synced beside the next one: who is left is on the device next.
// Token held, right behind the drain.
func (c *committer) fill(nodes []*commitNode, own *commitNode, slow bool) []*commitNode {
	again := c.left
	c.left = false
	if c.opts.Durability != Durable || len(nodes) > 0 && nodes[len(nodes)-1].Value.tx.async != nil {
		return nodes
	}
	all := int64(0)
	for _, n := range nodes {
		all += n.Value.redoBytes()
	}
	rest := all % logstore.BodySize
	if all < logstore.BodySize || all > fillPages*logstore.BodySize || (logstore.BodySize-rest)*gapShare < logstore.BodySize {
		return nodes
	}
	if slow && (again || rest*fillShare > logstore.BodySize) {
		return nodes
	}
	room, kept, mine := all-rest, 0, own == nil
	for kept < len(nodes) {
		n := nodes[kept]
		if n.Value.redoBytes() > room {
			break
		}
		room -= n.Value.redoBytes()
		mine = mine || n == own
		kept++
	}
	if kept == len(nodes) || !mine || room*gapShare > logstore.BodySize {
		return nodes
	}
	c.left = true
	c.resolver.list.Undrain(nodes, kept)
	clear(nodes[kept:])
	return nodes[:kept]
}

// redoBytes returns what a commit takes of a record group, about.
func (c *pushedCommit) redoBytes() int64 {
	return c.set.RedoBytes() - redoBytesSpare*int64(c.set.Len())
}

// redoBytesSpare is what writeset.Set.RedoBytes counts too much for each short key.
const redoBytesSpare = 4

// device tells the time from batch to batch, and what part of it is spent waiting for syncs: averages, roughly, over some batches. Token
// holder, but for took.
type device struct {
	at          time.Time // of the last batch
	all, synced time.Duration
	beside      bool          // groups are synced beside the next one: see beside_sync.go
	waited      time.Duration // then: that a finished group waits for the sync before
	took        atomic.Int64  // nanoseconds of syncs without the token, since the last batch
}

const (
	deviceBatches = 16 // of which the averages are
	deviceShare   = 2  // a device is slow if half of the time is spent waiting for it
	deviceIdle    = time.Second
)

func (d *device) turn() { d.turnAt(time.Now()) }

// turnAt is turn at a time. While nobody commits nothing is learnt of the device.
func (d *device) turnAt(now time.Time) {
	if since := now.Sub(d.at); since < deviceIdle {
		d.all += since - d.all/deviceBatches
	}
	d.at = now
	if took := d.took.Swap(0); took > 0 {
		d.wait(time.Duration(took))
	}
}

// oneSync returns about how long a sync takes that a leader waits for; 0 where commits are not synced.
func (d *device) oneSync() time.Duration {
	if d.at.IsZero() {
		return 0
	}
	return d.synced / deviceBatches
}

func (d *device) wait(sync time.Duration) { d.synced += sync - d.synced/deviceBatches }

func (d *device) slow() bool { return d.synced*deviceShare >= d.all }
