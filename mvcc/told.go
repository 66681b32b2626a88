package mvcc

import "sync/atomic"

// The table of last writes, hash(key) -> Seq, is for transactions that began before a batch and look for conflicts once it has left the
// commit list. Where there is none such, the Seq of the batch is noted as untold instead: a store to a table that no cache holds takes
// longer than a look at the registry.
//
// Invariants:
//
//  1. Of each batch that is cut from the list, or at which somebody may be registered, the table has all keys, or untold is not below its
//     Seq.
//  2. A transaction with a snapshot below untold has lost, as if two keys shared a place in the table.
//  3. The note is taken back once the table has all keys, and who resolves looks at the note first, then at the table.
//
// So no conflict is missed, by the argument of lockfree.List: who misses the batch in the list finds the note, or finds it in the table. It
// is for speed alone that the registry is looked at, and to invent few conflicts. The first look is before applied moves: who begins after
// it, and before that, is found by the second look, and the note taken back once the table has the batch. Somebody who resolves in between,
// or who came back to the registry meanwhile after waiting for admission, loses for nothing and tries again.

// lastOf returns the place of a key's last Seq.
func (e *Engine) lastOf(hash uint64) *atomic.Uint64 { return &e.last[hash&uint64(len(e.last)-1)] }

// tell tells of the batch at hand, before applied moves to its Seq. Baton holder.
func (e *Engine) tell(seq uint64) {
	if !e.besides(seq) {
		e.told = e.untold.Load()
		e.untold.Store(seq)
		return
	}
	e.enterKeys(seq)
}

// tellLate tells of it those who came between the look at the registry and applied, and reports whether there was nobody: then nobody who
// resolves looks at the batch or at those before any more. Baton holder.
func (e *Engine) tellLate(seq uint64) (alone bool) {
	if e.untold.Load() != seq {
		return false
	}
	if !e.besides(seq) {
		return true
	}
	e.enterKeys(seq)
	e.untold.Store(e.told)
	return false
}

func (e *Engine) enterKeys(seq uint64) {
	for _, n := range e.nodes {
		for hash := range n.Value.set.Hashes {
			e.lastOf(hash).Store(seq)
		}
	}
}

// besides reports whether there may be transactions below seq other than those of the batch. Where several commit at once there are, and
// the registry, which they write to all the time, is not looked at.
func (e *Engine) besides(seq uint64) bool {
	if e.active.Load() > 1 || e.unpinned.any() {
		return true
	}
	own := 1
	if e.nodes[0].Value.tx.single {
		own = 0
	}
	return e.registry.ReadersBelow(seq, own)
}
