package mvcc

import (
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore"
)

// checkpointer writes checkpoints and gives space back. Its fields except the atomic ones are guarded by mu.
type checkpointer struct {
	logParts
	tree     *tree
	pressure *pressure

	mu     sync.Mutex // one flush or checkpoint at a time; taken before the token
	pacing pacing
	turn   turn
	tight  atomic.Bool   // the file should grow before a commit has to wait for that,
	asked  atomic.Int64  // for commits that reserve this many pages
	done   atomic.Uint64 // number of checkpoints
}

// growAhead lets the file grow if that was asked for.
func (k *checkpointer) growAhead() {
	if k.tight.Swap(false) {
		k.report("growth", k.store.GrowAhead(k.asked.Load()))
	}
}

// checkpoint writes the table and the space map, and moves the scan start. It follows a flush. The caller holds
// checkpoints.mu.
func (k *checkpointer) checkpoint() (err error) {
	begin := time.Now()
	defer k.protect(&err)
	thaw, err := k.freeze(k.log.writeRedo)
	defer thaw()
	if err != nil {
		return err
	}
	c := k.store.BeginCheckpoint(k.pages.EncodeTable())
	if n := k.opts.StepPages; n > 0 {
		c.LimitPart(n)
	}
	k.step(StepBetween)
	pages := c.Pages()
	if err := k.writeCheckpoint(c); err != nil {
		return err
	}
	if err := c.Finish(); err != nil {
		return err
	}
	k.marks.publishDurable()
	k.done.Add(1)
	k.post(event.Event{Kind: event.Checkpoint, Took: time.Since(begin), Bytes: pages * logstore.PageSize})
	return k.log.withLog(func() error {
		k.pressure.atCheckpoint = k.store.SinceCheckpoint()
		return nil
	})
}

// freeze calls fn with the token, and keeps the installed state as it is then until thaw.
func (k *checkpointer) freeze(fn func() error) (thaw func(), err error) {
	err = k.tree.withTree(func() error {
		k.pages.Freeze()
		return fn()
	})
	return func() {
		k.token.take()
		defer k.token.pass(true)
		k.tree.finishMerge()
		k.pages.Thaw()
		k.tree.reclaim()
	}, err
}

// writeCheckpoint appends a checkpoint, in parts between the groups of commits.
func (k *checkpointer) writeCheckpoint(c *logstore.Checkpoint) error {
	pages := c.Pages()
	if err := k.store.Reserve(pages, true); err != nil {
		return err
	}
	defer func() { k.store.Release(pages) }()
	for done := false; !done; {
		err := k.log.withLog(func() (err error) {
			before := c.Pages()
			done, err = c.WritePart()
			k.store.Release(before - c.Pages())
			pages -= before - c.Pages()
			return err
		})
		if err != nil {
			return err
		}
		k.pace()
	}
	return nil
}
