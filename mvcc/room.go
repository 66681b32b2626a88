package mvcc

import (
	"sync/atomic"

	"flashdbm/internal/invariants"
	"flashdbm/logstore"
)

// room is what is reserved in the file for dirty pages. It belongs to the token holder.
type room struct {
	*file
	unwritten func() int64 // bounds the pages that everything in memory will take: see pressure.unwritten
	held      int64        // pages reserved for what is dirty
	logged    int64        // pages of groups of commits whose reservation was not given up yet: see spend
	full      atomic.Bool  // the file could not grow when a commit needed it to
}

// rebalance adapts the reservation to the dirty pages and to the redo in memory; the caller has reserved extra pages
// for them in addition. If the reservation is too small, the pages held back for deletes and checkpoints cover the
// difference; if these are used up, the next flush tries again.
func (r *room) rebalance(extra int64) {
	r.check()
	defer r.check()
	r.held += extra
	switch want := r.unwritten(); {
	case r.held > want:
		r.store.Release(r.held - want)
		r.held = want
	case r.held < want:
		_ = r.provide()
	}
}

// spend gives up the reservation of the groups of commits that were logged since the last call: left in held, it
// would pass for room of dirty pages that have too little. Token held.
func (r *room) spend() {
	r.check()
	if r.logged == 0 {
		return
	}
	spent := min(r.logged, r.held)
	r.store.Release(spent)
	r.held -= spent
	r.logged = 0
}

// provide reserves what the dirty pages and the redo in memory need, or returns an error if it cannot. It also makes
// sure that everything promised is there: a commit whose long values left ends of segments unused has taken more than
// was counted. Token held.
func (r *room) provide() error {
	r.check()
	missing := max(0, r.unwritten()-r.held)
	err := r.store.Reserve(missing, true)
	if err == nil {
		r.held += missing
	}
	return err
}

// check checks, in builds with the tag invariants, that no more was given up than was held.
func (r *room) check() {
	invariants.Check(r.held >= 0 && r.logged >= 0, "more room was given up than was held for dirty pages")
}

// scarce reports whether room for the given pages has to be secured before it is needed.
func (r *room) scarce(pages int64) bool {
	return r.limited() || r.store.DeviceFree() < plenty(pages, r.store.SpaceStats().FileBytes)
}

// plenty returns how many free bytes a device must have so that no room need be held for pages. The device is asked
// when the file grows, and once a second for what other programs take. So plenty is twice what the pages need, four
// times what the file grows by at once, and something for other programs.
func plenty(pages, file int64) int64 {
	return 2*withMargin(pages)*logstore.PageSize + file/8 + plentyLeast
}

const plentyLeast = 64 << 20

// limited reports whether the file has a limit, or the device was full when more was last needed. Then a commit is
// accepted only if there is room for everything dirty.
func (r *room) limited() bool { return r.opts.Store.MaxFileSize > 0 || r.full.Load() }

// withMargin adds an eighth for ends of segments and inner nodes.
func withMargin(pages int64) int64 { return pages + pages/8 }
