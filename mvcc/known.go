package mvcc

import "sync/atomic"

// known has copies of what only the baton holder may look at, so that Stats needs no lock of the writer's: a writer that hangs in a sync, or
// in a long merge, is when somebody asks for them. The baton holder stores each value when it changes, or at the next measure; a copy
// that is read beside is one that was right a moment ago. The values of one Stats need not be of one moment.
type known struct {
	commits atomic.Uint64 // since the engine was opened
	records atomic.Int64  // in the tree; commits that are pending are not counted yet
	dirty   atomic.Int64  // pages, as of the last measure

	recovery atomic.Pointer[RecoveryStats] // what it points to never changes

	delayed atomic.Uint64 // commits that have waited because there was too much redo: see hold
	delay   atomic.Int64  // nanoseconds that they have waited, all together
}

// tell replaces what recovery has found: once Open has ended, and when what it has left to do behind it is done. Open, then the baton holder.
func (k *known) tell(r RecoveryStats) { k.recovery.Store(&r) }
