package override

import "flashdbm/logstore"

// installed is the tree that recovery would find without redo, and what it needs of the log beside that.
type installed struct {
	*names
	base        uint64       // group: the tree is as of it, but for records behind redo
	redo        uint64       // group, not above base: redo starts behind it
	baseRecords int64        // records in the tree as of the base
	births      []birth      // values that entered the log after the base
	checks      []*Installed // under way
}

// birth is a run, or a large value's list, that entered the log after the base. Its pages live whether or not it is in the tree still.
type birth struct {
	group uint64
	addr  logstore.Addr
	mask  uint16 // of logged values of the page; 0: a run
}

// Base returns the group that the newest flush or page group is the tree of. Token held.
func (p *installed) Base() uint64 { return p.base }

// RedoStart returns the group behind which redo starts: the base, or one before it if leaves were left behind. Token held.
func (p *installed) RedoStart() uint64 { return p.redo }

// BaseRecords returns the number of records as of the base.
func (p *installed) BaseRecords() int64 { return p.baseRecords }

// install makes a the place of a page, which readers at birth or above come to: it is the Seq of the version that lies there. The place
// before it is dead.
func (p *installed) install(e *entry, a logstore.Addr, birth uint64) {
	if old := e.place(); old != 0 {
		p.store.KillNode(old, p.seq)
	}
	p.move(e, a)
	p.store.MarkNode(a, birth)
}

// move sets where the newest installed image of a page lies: 0 for its name, or nowhere. Token held.
func (p *installed) move(e *entry, a logstore.Addr) {
	for _, t := range p.checks {
		t.mu.Lock()
		if _, ok := t.before[e.id]; !ok {
			t.before[e.id] = e.disk
		}
		defer t.mu.Unlock()
	}
	e.disk = a
}

// rebase notes that the installed tree is as of group, but for what the redo behind another group brings, and how many records it has.
func (p *installed) rebase(group, redo uint64, records int64) {
	p.base, p.redo, p.baseRecords = group, redo, records
	p.store.Rebase(redo)
	p.forgetBirths()
}

// Born notes a run that the group being built carries: it lives from now on, and readers at seq or above may come to it. payload is its
// length in bytes. Token held.
func (p *installed) Born(group uint64, a logstore.Addr, payload int64, seq uint64) {
	p.store.MarkLive(a, logstore.RunPages(payload), seq)
	p.births = append(p.births, birth{group: group, addr: a})
}

// BornLogged is Born for logged values of a page of span pages of the file. Their records have the given bytes together, 0 if that is not
// known. Token held.
func (p *installed) BornLogged(group uint64, a logstore.Addr, span int, mask uint16, bytes int, seq uint64) {
	p.store.BearLogged(a, span, mask, bytes, seq)
	p.births = append(p.births, birth{group, a, mask})
}

// kill lets the pages, or the logged values of a page, that a flush lists die.
func (p *installed) kill(d Extent, seq uint64) {
	if d.Pages&loggedDeath != 0 {
		p.store.KillLogged(d.Addr, uint16(d.Pages), seq)
		return
	}
	p.store.Kill(d.Addr, d.Pages, seq)
}

// forgetBirths drops the births up to the base: of those, what lives is in the installed tree.
func (p *installed) forgetBirths() {
	n := 0
	for n < len(p.births) && p.births[n].group <= p.base {
		n++
	}
	p.births = append(p.births[:0], p.births[n:]...)
}
