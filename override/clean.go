package override

import (
	"flashdbm/logstore"
)

// Cleaning empties segments in which few pages are live. It makes the live tree pages of such a segment dirty
// without changing them, so that the next flush moves them to the end of the log, in key order with the other
// pages that it writes. Cleaning changes no record, and the log needs no new kind of entry for it.
//
// The owner of a live page at address b is the name in the page's mux area if the table maps that name to b.
// Otherwise it is b itself: the parent was folded since the page was written. A page with another name needs no
// cleaning: names that lie in the segment keep the segment from reuse, and the folds before a checkpoint remove
// those names.

// Clean makes the live tree page at a dirty, and reports whether it did. It does nothing if the page is dirty
// already, has died, or is a value run.
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
