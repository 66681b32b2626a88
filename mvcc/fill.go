package mvcc

import "flashdbm/logstore"

// A group takes whole pages. One whose redo fills little of its last page costs that page, and brings the next flush as much nearer as a
// full one: redo is counted in pages. So a batch that would fill half of its last page or less leaves that to the next batch, the newest
// commits first, which wait one sync longer. None waits longer than that: behind a batch that has left any, the next one takes all. Else
// a few more committers than a page has room for would make each sync serve a page full, and not all of them.
//
//   - Who is left has not been drained, as far as anyone can see: it is undrained before the batch gets its Seq, and who gives up the baton
//     finds it in the list and wakes the newest one with the baton, as if it had come later.
//   - The leader's own commit is not left: it returns when its batch is settled. It is none of the newest, as others come while it yields.
//   - What counts is what the commits take without those of the same keys. So a batch of hot keys may leave some for nothing.
const (
	fillPages = 4 // a longer group loses little with its last page
	fillShare = 2 // of the last page
	gapShare  = 8 // of a page: where large commits would leave a larger gap, less is gained than the wait costs
)

// fill leaves the newest of the commits drained to the next batch, if that is worth it, and returns the others. Baton holder, right behind
// the drain.
func (e *Engine) fill(nodes []*commitNode, own *commitNode) []*commitNode {
	if e.opts.Durability != Durable || e.left {
		e.left = false
		return nodes
	}
	all := int64(0)
	for _, n := range nodes {
		all += n.Value.redoBytes()
	}
	rest := all % logstore.BodySize
	if all < logstore.BodySize || all > fillPages*logstore.BodySize || rest*fillShare > logstore.BodySize {
		return nodes
	}
	room, kept, mine := all-rest, 0, false
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
	e.left = true
	e.list.Undrain(nodes, kept)
	clear(nodes[kept:])
	return nodes[:kept]
}

// redoBytes returns what a commit takes of a record group, about.
func (c *commit) redoBytes() int64 {
	return c.set.RedoBytes() - redoBytesSpare*int64(c.set.Len())
}

// redoBytesSpare is what WriteSet.RedoBytes counts too much for each short key.
const redoBytesSpare = 4
