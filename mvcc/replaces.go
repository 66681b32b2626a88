package mvcc

// A transaction that only replaces values by values that are no longer adds no page to the tree: it leaves as many
// pages dead as it writes, like a transaction of deletes. So on a full file it may use the pages that are held back
// for deletes before anything is cleaned (logstore/space/reservations.go), and leaves for cleaning what deletes
// leave. Without this a dump could not be loaded again over itself: the put that found the file full had left exactly
// what puts leave, and each put after it needed one page more.
//
// There is one exception: a full page of records of equal lengths is split when one of its values gets shorter, for
// the page then stores the lengths of each. On a file full of such pages these puts find no room in the end.
//
// Invariant 3 of logstore/space/reservations.go holds: cleaning gives this room back under the same condition as that
// of deletes. If another transaction deletes a key between replacesOnly and the commit, the put adds a record, but no
// more than the other one has just removed.

// replacesOnly reports whether the transaction writes only deletes, and values that are no longer than the present
// ones. It reads the tree, so it is called only if the file is full. The transaction has given up its snapshot by
// then.
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
