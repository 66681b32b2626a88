package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/btree"
)

// known has copies of what only the token holder may look at, so that Stats needs no lock of the writer's: a writer that hangs in a sync, or
// in a long merge, is when somebody asks for them. The token holder stores each value when it changes, or at the next measure; a copy
// that is read beside is one that was right a moment ago. The values of one Stats need not be of one moment.
type known struct {
	commits atomic.Uint64 // since the engine was opened
	put     atomic.Uint64 // bytes of the keys and values that they have put, and of the keys that they have deleted
	dirty   atomic.Int64  // pages, as of the last measure

	recovery atomic.Pointer[RecoveryStats] // what it points to never changes

	delayed atomic.Uint64 // commits that have waited because there was too much redo: see hold
	delay   atomic.Int64  // nanoseconds that they have waited, all together
}

// tell replaces what recovery has found: once Open has ended, and when what it has left to do behind it is done. Open, then the token holder.
func (k *known) tell(r RecoveryStats) { k.recovery.Store(&r) }

// gathered counts the bytes of a batch, before its values leave the ops. Of a write set that has left memory the commit counts those that
// its leaves get. Token held.
func (k *known) gathered(ops []btree.Op) {
	bytes := 0
	for i := range ops {
		bytes += len(ops[i].Key) + len(ops[i].Value)
		if r := ops[i].Ref; r != nil {
			bytes += int(r.ValueLen)
		}
	}
	k.put.Add(uint64(bytes))
}
