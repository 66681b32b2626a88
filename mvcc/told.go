package mvcc

// The token holder tells those who may look for conflicts of each batch, by the table of last writes or by a note: see commit.LastWrites. It is
// for speed alone that the registry is looked at, and to invent few conflicts. The first look is before applied moves: a transaction that
// registers between that look and the move is found by the second one, and the note taken back once the table has the batch. One that
// resolves in between, or that came back to the registry meanwhile after waiting for admission, loses for nothing and tries again.

// tell tells of the batch at hand, before applied moves to its Seq. Token held.
func (r *resolver) tell(seq uint64, nodes []*commitNode) {
	r.cleared.note(nodes, seq)
	if !r.besides(seq, nodes) {
		r.writes.Note(seq)
		return
	}
	r.enterKeys(seq, nodes)
}

// tellLate tells of it those who came between the look at the registry and applied, and reports whether there was nobody: then nobody who
// resolves looks at the batch or at those before any more. Token held.
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
	for _, n := range nodes {
		for hash := range n.Value.set.Hashes {
			r.writes.Of(hash).Store(seq)
		}
	}
}

// besides reports whether there may be transactions below seq other than those of the batch. Where several commit at once there are, and
// the registry, which they write to all the time, is not looked at.
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
