package mvcc

import (
	"sync/atomic"

	"flashdbm/logstore"
)

// room is what is reserved in the file for what is dirty. It belongs to the token's holder.
type room struct {
	*file
	unwritten func() int64 // bounds the pages that what is in memory will take: see pressure
	held      int64        // pages reserved for what is dirty
	logged    int64        // pages of groups of commits for which what was reserved is not given up yet: see spend
	full      atomic.Bool  // the file could not grow when a commit needed it to
}

// rebalance sets what is reserved for the dirty pages and the redo in memory anew; extra pages were reserved for them beside that. If there are
// too few, the pages held back for deletes and checkpoints cover the difference; without those the next flush tries again.
func (r *room) rebalance(extra int64) {
	r.held += extra
	switch want := r.unwritten(); {
	case r.held > want:
		r.store.Release(r.held - want)
		r.held = want
	case r.held < want:
		_ = r.provide()
	}
}

// spend gives up what was reserved for the groups of commits that have been logged since it was called last: left in held, it would be
// taken for room of dirty pages where there was too little for those. Token held.
func (r *room) spend() {
	if r.logged == 0 {
		return
	}
	spent := min(r.logged, r.held)
	r.store.Release(spent)
	r.held -= spent
	r.logged = 0
}

// provide reserves what the dirty pages and the redo in memory need, or reports that it cannot be had. It also makes sure that all that
// is promised is there: a commit whose long values left ends of segments unused has taken more than was counted. Token held.
func (r *room) provide() error {
	missing := max(0, r.unwritten()-r.held)
	err := r.store.Reserve(missing, true)
	if err == nil {
		r.held += missing
	}
	return err
}

// scarce reports whether room for the given pages has to be made sure of before there is need of it.
func (r *room) scarce(pages int64) bool {
	return r.limited() || r.store.DeviceFree() < plenty(pages, r.store.SpaceStats().FileBytes)
}

// plenty returns the free bytes from which on a device has plenty of room for pages that none is held for. The device is asked when the file
// grows, and once a second for what others take. So plenty is twice what the pages need, four times what the file grows by at once, and
// something for others.
func plenty(pages, file int64) int64 {
	return 2*withMargin(pages)*logstore.PageSize + file/8 + plentyLeast
}

const plentyLeast = 64 << 20

// limited reports whether the file has a limit, or the disk was full when there was last need of more. Then there is room for all that is
// dirty before a commit is accepted.
func (r *room) limited() bool { return r.opts.Store.MaxFileSize > 0 || r.full.Load() }

// withMargin adds what ends of segments and inner nodes may take.
func withMargin(pages int64) int64 { return pages + pages/8 }
