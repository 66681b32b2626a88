package override

import "flashdbm/logstore"

// installed is the tree that recovery would find without redo, and what recovery needs from the log in
// addition tree.
type installed struct {
	*names
	base        uint64       // group up to which the tree has all commits, except what redo brings
	redo        uint64       // group, not above base, after which redo starts
	baseRecords int64        // records in the tree as of the base
	births      []birth      // values that entered the log after the base
	checks      []*Installed // checks in progress
}

// birth is a run, the list of a large value, or logged values of a page, that entered the log after the base.
// Its pages are live even if the tree no longer refers to it.
type birth struct {
	group uint64
	addr  logstore.Addr
	mask  uint16 // logged values of the page; 0: a run
}

// Base returns the base of the newest flush or page group: the group up to which its tree has all commits.
// Token held.
func (p *installed) Base() uint64 { return p.base }

// RedoStart returns the group after which redo starts: the base, or an earlier group if leaves were left
// behind. Token held.
func (p *installed) RedoStart() uint64 { return p.redo }

// BaseRecords returns the number of records in the installed tree.
func (p *installed) BaseRecords() int64 { return p.baseRecords }

// install makes a the place of a page. birth is the Seq of the version that lies there; readers at birth or
// above use it. The previous place dies.
func (p *installed) install(e *entry, a logstore.Addr, birth uint64) {
	if old := e.place(); old != 0 {
		p.store.KillNode(old, p.seq)
	}
	p.move(e, a)
	p.store.MarkNode(a, birth)
}

// move sets the disk field of an entry, and saves the previous value for checks in progress. 0 means that the
// image is at the name, or nowhere for a born name. Token held.
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

// rebase notes that the installed tree has all commits up to group, except those that redo after another group
// brings, and the number of its records.
func (p *installed) rebase(group, redo uint64, records int64) {
	p.base, p.redo, p.baseRecords = group, redo, records
	p.store.Rebase(redo)
	p.forgetBirths()
}

// Born notes a run that the group being built carries: its pages are live from now on, and readers at seq or
// above may reach it. payload is its length in bytes. Token held.
func (p *installed) Born(group uint64, a logstore.Addr, payload int64, seq uint64) {
	p.store.MarkLive(a, logstore.RunPages(payload), seq)
	p.births = append(p.births, birth{group: group, addr: a})
}

// BornLogged is Born for the logged values that mask selects in the page of records at a, which takes span
// pages of the file. bytes is the total length of their records, 0 if that is not known. Token held.
func (p *installed) BornLogged(group uint64, a logstore.Addr, span int, mask uint16, bytes int, seq uint64) {
	p.store.BearLogged(a, span, mask, bytes, seq)
	p.births = append(p.births, birth{group, a, mask})
}

// kill marks an entry of a flush's list of deaths as dead: pages, or logged values of one page.
func (p *installed) kill(d Extent, seq uint64) {
	if d.Pages&loggedDeath != 0 {
		p.store.KillLogged(d.Addr, uint16(d.Pages), seq)
		return
	}
	p.store.Kill(d.Addr, d.Pages, seq)
}

// forgetBirths drops the births up to the base: those that are still live are in the installed tree.
func (p *installed) forgetBirths() {
	n := 0
	for n < len(p.births) && p.births[n].group <= p.base {
		n++
	}
	p.births = append(p.births[:0], p.births[n:]...)
}
