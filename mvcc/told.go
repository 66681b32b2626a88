package mvcc

// The leader makes each batch known to transactions that look for conflicts: it either enters the batch's keys into
// the table of last writes, or only leaves a note with the Seq (commit.LastWrites), which makes every older snapshot
// lose. A note is enough if the registry shows no transaction that could look; looking there only saves time and
// avoids needless conflicts. The first look comes before applied moves. A transaction that registers between that
// look and the move is found by the second look; then the keys are entered and the note is taken back. A transaction
// that is resolved in between, or that re-registers after waiting for admission, may lose needlessly, and tries
// again.

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
