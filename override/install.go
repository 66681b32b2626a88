package override

import (
	"fmt"
	"slices"

	"flashdbm/logstore"
)

// An installer takes in the groups of the log, in order: recovery those after the newest checkpoint, and a
// reader beside a writer then those that the writer appends. Complete flushes and page groups become the
// installed tree. A value is live from the group that carries it until the flush that lists it as dead.
//
// Recovery has no readers: what it finds replaces what was there. A follower has readers: what it finds gets
// the Seq of the batch begun last, and a name that left the table stays for them, as in the writer.
type installer struct {
	*Pages
	tableBase uint64                            // base of the checkpoint's table
	parts     map[uint64][]logstore.ScannedPage // tree pages and runs of incomplete flushes, by the group of their first part
	built     uint64                            // group of the first part of the newest incomplete flush with pages of a Build; 0 for none
}

// known returns the newest group G such that every record in the groups up to G is in the tree or in redo. The records
// of a Build are in no redo, and are in the tree only once the Build's flush is complete.
func (in *installer) known() uint64 {
	if in.built > 0 {
		return in.built - 1
	}
	return in.store.LastGroup()
}

// group takes in a group. rebased tells that there is a new base, and that the caller has to apply all redo
// after RedoStart again.
func (in *installer) group(g *logstore.ScannedGroup) (rebased bool, err error) {
	if in.built > 0 && g.Kind != logstore.FlushGroup { // a Build holds the token from its first group to its last, so this one was abandoned
		in.built = 0
	}
	switch g.Kind {
	case logstore.RecordGroup, logstore.PageGroup:
		if g.No <= in.tableBase { // the checkpoint's space map already knows which of its values are live
			return false, nil
		}
		if err := in.values(g, g.Pages); err != nil || g.Kind == logstore.RecordGroup {
			return false, err
		}
		in.rewind()
		if err := in.pages(g.Pages); err != nil {
			return false, err
		}
		in.rebase(g.No, g.No, int64(g.Count))
		return true, nil
	case logstore.FlushGroup:
		stream, err := in.flushStream(g)
		if err != nil {
			return false, err
		}
		if stream == nil {
			if slices.ContainsFunc(g.Pages, func(page logstore.ScannedPage) bool { return isBuilt(page) || page.Kind == logstore.KindRun }) {
				in.built = g.Count // no other flush has runs
			} else if g.Count != in.built { // nor does another flush begin amid a Build
				in.built = 0
			}
			in.parts[g.Count] = append(in.parts[g.Count], g.Pages...)
			return false, nil
		}
		return in.wholeFlush(g, stream)
	}
	return false, nil
}

// values marks the values that pages carry as live; a later flush lists those that died. Values in a flush are
// those of a tree that was built, and live as long as that tree has them.
func (in *installer) values(g *logstore.ScannedGroup, pages []logstore.ScannedPage) error {
	for _, page := range pages {
		if page.Kind == logstore.KindRecord && page.Values > 0 {
			in.BornLogged(g.No, page.Addr, int(page.Run), uint16(1<<page.Values-1), 0, 0)
		}
		if page.Kind != logstore.KindRun {
			continue
		}
		in.store.MarkLive(page.Addr, page.Run, 0)
		if g.Kind != logstore.FlushGroup {
			in.births = append(in.births, birth{group: g.No, addr: page.Addr})
		}
		extents, err := in.store.ListAt(page.Addr)
		if err != nil {
			return err
		}
		if err := in.store.NoteListed(extents, g.No); err != nil {
			return err
		}
	}
	return nil
}

// pages installs tree pages.
func (in *installer) pages(pages []logstore.ScannedPage) error {
	for _, page := range pages {
		if page.Kind != logstore.KindTree {
			continue
		}
		if isBuilt(page) {
			in.store.MarkNode(page.Addr, 0)
			continue
		}
		if logstore.IsAddr(page.Name) && !in.store.InFile(page.Name, 1) {
			return fmt.Errorf("%w: %s: page %d has the name %d", logstore.ErrCorrupt, in.store.Path(), page.Addr, page.Name)
		}
		e := in.table.find(page.Name)
		if e == nil && in.follow != nil && logstore.IsAddr(page.Name) { // the table needs a version for readers of earlier Seqs, who find the page at its address
			e = in.enter(page.Name)
		}
		if e != nil {
			in.replace(e, &version{kind: atAddress, addr: page.Addr})
		} else {
			var first *version
			e, first = newEntry(page.Name)
			first.seq, first.kind, first.addr = in.seq, atAddress, page.Addr
			in.attach(e)
		}
		in.install(e, page.Addr, 0)
	}
	return nil
}

// replace makes v the newest version of an entry.
func (in *installer) replace(e *entry, v *version) {
	old := e.newest()
	v.seq = in.seq
	if old.seq == v.seq { // no reader is at this Seq yet
		v.next.Store(old.next.Load())
		e.show(v)
		if old.kind == inMemory {
			old.node.Release(in.memory)
		}
		return
	}
	v.next.Store(old)
	e.show(v)
	in.limbo.supersede(e, old, v.seq)
}

// leave makes an entry leave the table once no reader is below the present Seq.
func (in *installer) leave(e *entry) {
	in.limbo.entries = append(in.limbo.entries, leavingEntry{e, in.seq})
}

// gone takes an entry whose name means nothing in the newest tree out of the table: at once in recovery, for
// later readers in a follower.
func (in *installer) gone(e *entry, kind versionKind) {
	if in.follow == nil {
		in.detach(e)
		return
	}
	e.disk = 0
	in.replace(e, &version{kind: kind})
	in.leave(e)
}

// rewind goes back to the installed pages: versions that redo made in memory are no longer current.
func (in *installer) rewind() {
	for _, e := range in.dirty.pages {
		switch at := e.place(); {
		case at == 0: // born by redo in this process
			in.replace(e, &version{kind: removed})
			in.leave(e)
		default:
			in.replace(e, &version{kind: atAddress, addr: at})
			if e.disk == 0 {
				in.leave(e)
			}
		}
	}
	in.dirty.clear()
	in.deaths = deaths{}
}

// isBuilt reports whether a tree page was written by a Build.
func isBuilt(page logstore.ScannedPage) bool {
	return page.Kind == logstore.KindTree && page.Name == page.Addr
}

// flushStream returns the stream at the end of a flush, or nil for a part that is not the last.
func (in *installer) flushStream(g *logstore.ScannedGroup) ([]byte, error) {
	var stream []byte
	for _, page := range g.Pages {
		if page.Kind == logstore.KindFlush {
			body, err := in.store.Body(page)
			if err != nil {
				return nil, err
			}
			stream = append(stream, body...)
		}
	}
	return stream, nil
}

// wholeFlush installs a flush; g is its last part. A flush whose base is not above that of the checkpoint's
// table is in the table already: the checkpoint followed it, and the base of any later flush is after the
// checkpoint's own groups.
func (in *installer) wholeFlush(g *logstore.ScannedGroup, stream []byte) (rebased bool, err error) {
	end, err := getFlushEnd(stream, g.No)
	if err != nil {
		return false, fmt.Errorf("%s: %w", in.store.Path(), err)
	}
	parts := append(in.parts[end.first], g.Pages...)
	clear(in.parts) // parts of other flushes never count
	in.built = 0
	if end.base <= in.tableBase {
		return false, nil
	}
	if end.redo < in.redo {
		return false, fmt.Errorf("%w: %s: redo goes back to group %d with the flush in group %d", logstore.ErrCorrupt, in.store.Path(), end.redo, g.No)
	}
	in.rewind()
	if err := in.pages(parts); err != nil {
		return false, err
	}
	if err := in.values(g, parts); err != nil {
		return false, err
	}
	for _, r := range end.retired {
		e := in.table.find(r.id)
		if e == nil || e.disk != r.addr {
			return false, in.badFlush(g.No, r.id)
		}
		in.gone(e, tombstone)
	}
	for _, id := range end.removed {
		if e := in.table.find(id); e != nil {
			if at := e.place(); at != 0 {
				in.store.KillNode(at, 0)
			}
			in.gone(e, removed)
		} else if logstore.IsAddr(id) { // a born name without an entry was born and removed before any flush
			if !in.store.InFile(id, 1) {
				return false, in.badFlush(g.No, id)
			}
			in.store.KillNode(id, 0)
		}
	}
	for _, d := range end.dying {
		pages := d.Pages
		if pages&loggedDeath != 0 {
			pages = 1
		}
		if !in.store.InFile(d.Addr, pages) {
			return false, in.badFlush(g.No, d.Addr)
		}
		in.kill(d, 0)
	}
	in.rebase(end.base, end.redo, end.records)
	if in.follow == nil { // a follower's counter is for names of its own
		in.born.Store(end.born)
	}
	return true, nil
}

func (in *installer) badFlush(group uint64, id logstore.PageID) error {
	return fmt.Errorf("%w: %s: the end of a flush in group %d lists %#x", logstore.ErrCorrupt, in.store.Path(), group, id)
}
