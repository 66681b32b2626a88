package override

import (
	"flashdbm/logstore"
)

// Cleaning empties segments that hold little: their live pages are made dirty as they are, so that the next flush moves them to the end of
// the log, in key order with all else that it writes. It changes no record, and needs nothing in the log that a flush does not have.
//
// The owner of a live page at b is the name in its mux area if the table leads from that to b, else b: the name of a page whose parent was
// folded since it was written. What has another name is kept from reuse by the names that lie in its segment; the folds before a
// checkpoint drain those.

// Clean makes the live tree page at a dirty, unless it is or has died, and reports whether it did. Value runs stay: moved is false.
func (b *Batch) Clean(a logstore.Addr) (moved bool, err error) {
	p := b.p
	if !p.store.IsLive(a) {
		return false, nil
	}
	kind, bears, err := p.store.KindAt(a)
	if err != nil || kind != logstore.KindTree {
		return false, err
	}
	return b.Touch(p.owner(a, bears))
}
