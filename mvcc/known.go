package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/btree"
)

// known has copies of values that only the token holder may look at, so that Stats takes no lock of the writer's: a
// user asks for statistics especially while a writer hangs in a sync or a long merge. The token holder stores each
// value when it changes, or at the next tree.measure; so a copy was right a moment ago. The values of one Stats need
// not be of one moment.
type known struct {
	commits atomic.Uint64 // since the engine was opened
	put     atomic.Uint64 // bytes of the keys and values that these have put, and of the keys that they have deleted
	dirty   atomic.Int64  // pages, as of the last measure

	recovery atomic.Pointer[RecoveryStats] // what it points to never changes

	delayed atomic.Uint64 // commits that have waited because redo was too long: see hold
	delay   atomic.Int64  // nanoseconds that they have waited in all
}

// tell replaces the result of recovery: when Open ends, and when the redo that it left is merged. Called by Open,
// then by the token holder.
func (k *known) tell(r RecoveryStats) { k.recovery.Store(&r) }

// countOps counts the bytes of a batch: those in the ops, and those of as many values as are in runs. A spilled write
// set is counted by its commit instead, with the bytes that leaves get of it. Token held.
func (k *known) countOps(bytes int, ops []btree.Op, runs int) {
	if runs > 0 {
		for i := range ops {
			if r := ops[i].Ref; r != nil {
				bytes += int(r.ValueLen)
			}
		}
	}
	k.put.Add(uint64(bytes))
}
