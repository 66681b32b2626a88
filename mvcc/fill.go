package mvcc

import (
	"sync/atomic"
	"time"

	"flashdbm/logstore"
)

// A group takes whole pages. If its redo fills little of its last page, the group still costs that page, and brings
// the next flush as much nearer as a full page would, because redo is counted in pages. So a batch leaves the commits
// that would not fill its last page, the newest ones, to the next batch. These wait one sync longer.
//
// If most time goes to the processors, smaller batches follow each other faster, and leaving commits costs little. If
// most time goes to the device (slow), and there are slightly more committers than one page has room for, each sync
// would serve one page full of them instead of all. Then commits are left only if they take half a page or less, and
// the next batch takes all.
//
//   - A commit that is left was never drained, as far as others can see: it is undrained before the batch gets its
//     Seq. The goroutine that passes the token on finds it in the list and hands the token to the newest committer
//     there, as if the commit had been pushed later.
//   - No commit is left twice: those that are left fit on one page and are the oldest of the next batch, which takes
//     a page full or everything.
//   - The leader's own commit is not left, because the leader returns when its batch is completed. It is rarely among
//     the newest, as others push while the leader yields. If groups are synced beside the next one, it may be left,
//     and its committer then waits as the others do.
//   - A batch leaves nothing if its newest commit is asynchronous (nobody waits for it). Such commits arrive all at
//     once when others are called back: with 50 of 100 bytes under way, each sync covered a page full of them, 34,
//     and covers 48 without.
//   - Sizes are those of the commits one by one. A batch that writes the same keys often takes less, and may leave
//     commits for nothing.
const (
	fillPages = 4 // a longer group loses little with its last page
	fillShare = 2 // of the last page: with a slow device, commits are left only if they take at most half of it
	// gapShare: commits are left only if the gap in the last page is at least an eighth of a page, and the gap that
	// leaving them makes in the page before (large commits make large ones) is at most an eighth. Otherwise less is
	// gained than the wait costs.
	gapShare = 8
)

// fill leaves the newest of the drained commits to the next batch, if that is worth it, and returns the others, own
// among them if it was drained. slow reports whether most time goes to the device; it is false if groups are synced
// beside the next one, where commits that are left are on the device next. Token held, right after the drain.
func (c *committer) fill(nodes []*commitNode, own *commitNode, slow bool) []*commitNode {
	again := c.left
	c.left = false
	if c.opts.Durability != Durable || len(nodes) > 0 && nodes[len(nodes)-1].Value.tx.async.done != nil {
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

// redoBytes returns about how many bytes a commit takes in a record group.
func (c *pushedCommit) redoBytes() int64 {
	return c.set.RedoBytes() - redoBytesSpare*int64(c.set.Len())
}

// redoBytesSpare is how much writeset.Set.RedoBytes overestimates each short key, in bytes.
const redoBytesSpare = 4

// device measures the time from batch to batch, and the part of it that is spent waiting for syncs: moving averages
// over about deviceBatches batches. Its fields belong to the token holder, except took.
type device struct {
	at          time.Time // when the last batch began
	all, synced time.Duration
	beside      bool          // groups are synced beside the next one: see beside_sync.go
	waited      time.Duration // if beside: time that a finished group waits for the sync before
	took        atomic.Int64  // nanoseconds of syncs without the token since the last batch
}

const (
	deviceBatches = 16          // batches that the averages cover
	deviceShare   = 2           // a device is slow if half of the time is spent waiting for it
	deviceIdle    = time.Second // a longer pause between batches is not counted
)

func (d *device) turn() { d.turnAt(time.Now()) }

// turnAt notes that a batch begins now. A pause without commits tells nothing about the device.
func (d *device) turnAt(now time.Time) {
	if since := now.Sub(d.at); since < deviceIdle {
		d.all += since - d.all/deviceBatches
	}
	d.at = now
	if took := d.took.Swap(0); took > 0 {
		d.wait(time.Duration(took))
	}
}

// oneSync returns about how long one sync takes that a leader waits for; 0 before the first synced batch.
func (d *device) oneSync() time.Duration {
	if d.at.IsZero() {
		return 0
	}
	return d.synced / deviceBatches
}

func (d *device) wait(sync time.Duration) { d.synced += sync - d.synced/deviceBatches }

func (d *device) slow() bool { return d.synced*deviceShare >= d.all }
