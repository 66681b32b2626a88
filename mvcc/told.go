package mvcc

// For transactions that look for conflicts, the leader either enters the keys of each batch into the table of last
// writes, or only leaves a note with the batch's Seq (commit.LastWrites), by which every transaction with an older
// snapshot loses. A note takes less time, and is enough if the registry has no transaction with an older snapshot. The
// leader reads the registry twice: before applied moves, and after. A transaction that registers between the first
// reading and the move is found by the second one; then the leader enters the keys and takes the note back. A
// transaction that is resolved before that, or that registers again after it has waited for admission, may lose
// although it does not conflict. It then runs again.

// tell makes the batch at hand known, before applied moves to its Seq. Token held.
func (r *resolver) tell(seq uint64, nodes []*commitNode) {
	r.cleared.note(nodes, seq)
	if !r.besides(seq, nodes) {
		r.writes.Note(seq)
		return
	}
	r.enterKeys(seq, nodes)
}

// tellLate enters the keys of the batch for transactions that came between the first look and applied. It reports
// whether there was none: then no resolver looks at the batch, or at those before it, any more. Token held.
func (r *resolver) tellLate(seq uint64, nodes []*commitNode) (alone bool) {
	if r.writes.Untold() != seq {
		return false
	}
	if !r.besides(seq, nodes) {
		return true
	}
	r.enterKeys(seq, nodes)
	r.writes.TakeBack()
	return false
}

func (r *resolver) enterKeys(seq uint64, nodes []*commitNode) {
	keys := 0
	for _, n := range nodes {
		keys += n.Value.set.Len()
	}
	r.writes.BeginBatch(seq, keys)
	for _, n := range nodes {
		for hash := range n.Value.set.Hashes {
			r.writes.Enter(seq, hash)
		}
	}
	r.writes.EndBatch()
}

// besides reports whether there may be transactions below seq other than those of the batch. If several commits are
// active there are such; then the registry, which these write to all the time, is not read.
func (r *resolver) besides(seq uint64, nodes []*commitNode) bool {
	if r.readers.active.Load() > 1 || r.readers.unpinned.any() {
		return true
	}
	own := 1
	if nodes[0].Value.tx.single {
		own = 0
	}
	return r.readers.registry.ReadersBelow(seq, own)
}
