package mvcc

// A transaction that only replaces values by others that are no longer makes no page more of the tree: it leaves as many pages dead as it
// writes, like one that deletes. So on a full file it may take what is held back for deletes to take before anything is cleaned, see
// logstore/space/reservations.go, and leaves for cleaning what they leave. Without that a dump could not be loaded again over itself: the put that
// found the file full had left exactly what puts leave, and each put after it needed a page more.
//
// Invariant 3 of logstore/space/reservations.go holds: room taken this way is given back by cleaning under the same condition as that of deletes.
// Another transaction may delete a key between the look and the commit. Then the put adds what the other one has just removed.

// replacesOnly reports whether all that the transaction writes are values that are no longer than those that there are, and deletions. It
// reads the tree, so it is asked only where the file is full. The transaction's own snapshot is given up by then.
func (a *admission) replacesOnly(tx *Tx) (same bool, err error) {
	if tx.set.Spilled() != nil || len(tx.large) > 0 {
		return false, nil
	}
	for w := range tx.set.All() {
		if w.Deleted {
			continue
		}
		if w.Ref != nil {
			return false, nil
		}
		n, there, err := tx.e.LookInto(w.Key, nil)
		if err != nil || !there || n < len(w.Value) {
			return false, err
		}
	}
	return true, nil
}
