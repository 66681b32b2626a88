package override

import (
	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// A value too long for a leaf lies in a run. A still larger value lies in extents that a run lists. A flush copies
// neither of them. Their pages are live from the group that carries them until a flush lists them as dead: the first
// flush whose base is not before the value's deletion.

// Extent is a stretch of pages in one segment.
type Extent struct {
	Addr  logstore.Addr
	Pages int64
}

// loggedDeath marks an Extent that stands for logged values: its Pages field is a mask of the dead logged
// values of the page at Addr.
const loggedDeath = 1 << 31

// deaths are values that left the tree and whose pages no flush has listed yet.
type deaths struct {
	refs    []btree.Ref
	logged  map[logstore.Addr]uint16 // masks of logged values, by page
	entries int                      // bound of the entries that refs take in a flush's stream, from the lengths in refs: see most
}

func (d *deaths) add(ref btree.Ref, segmentPages uint32) {
	if ref.Kind == btree.Logged {
		if d.logged == nil {
			d.logged = map[logstore.Addr]uint16{}
		}
		place := logstore.Place(ref.ID)
		d.logged[place.Addr()] |= place.Mask()
		return
	}
	d.refs = append(d.refs, ref)
	d.entries++
	if ref.Kind == btree.Extents {
		// The first extent may have one page, as in an image; the others fill their segments. Segment 0 has pages
		// from 3 on.
		others := (ref.ValueLen - 1) / logstore.PageSize
		room := uint64(segmentPages - 3)
		d.entries += 1 + int((others+room-1)/room)
	}
}

// most bounds the entries that the deaths take in a flush's stream, in a file of the given number of pages. A
// list is read once and its extents do not overlap, so there are no more extents than pages, whatever lengths
// the references of a hostile file claim.
func (d *deaths) most(pages logstore.Addr) int {
	return int(min(uint64(d.entries), uint64(len(d.refs))+pages)) + len(d.logged)
}

// dying lists the pages of dead values. It reads the lists of large values, and nothing of other values. The
// pages of a damaged list cannot be known: they stay live, for a Check to find, and deleting the damaged value
// still works. A list is read once, however many records of a damaged file lead to it.
//
// If two records of a damaged file lead to one run, the deletion of the first lets the run die, whichever
// record it was written for. A run holds its key only if the key is long, and reading the first page of each
// dying value would cost a read of the device per delete. Check finds such records.
func (p *images) dying(d *deaths) []Extent {
	var all []Extent
	for a, mask := range d.logged {
		if p.store.InFile(a, 1) { // otherwise a damaged leaf named it, and recovery would refuse a flush that lists it
			all = append(all, Extent{a, loggedDeath | int64(mask)})
		}
	}
	runs := p.store.NewUsedPages()
	for _, ref := range d.refs {
		a, err := p.addrAt(ref.ID, p.seq)
		if err != nil || p.store.UseOnce(runs, a, 1) != nil { // of two records that lead to the same run, one lets it die
			continue
		}
		if ref.Kind == btree.Run {
			x := Extent{a, logstore.RunPages(int64(ref.KeyLen) + int64(ref.ValueLen))}
			if p.store.InFile(x.Addr, x.Pages) {
				all = append(all, x)
			}
		} else if pages, err := p.pagesAt(a, ref); err == nil {
			all = append(all, pages...)
		}
	}
	return all
}

// pagesAt returns the pages of a value whose run is at a: the pages of the run, and those of the extents that it lists.
// It verifies the run.
func (p *images) pagesAt(a logstore.Addr, ref btree.Ref) ([]Extent, error) {
	payload, err := p.store.Run(a)
	if err != nil {
		return nil, err
	}
	pages := []Extent{{a, logstore.RunPages(int64(len(payload)))}}
	if ref.Kind != btree.Extents {
		if uint64(ref.KeyLen)+ref.ValueLen != uint64(len(payload)) {
			return nil, p.badRun(ref)
		}
		return pages, nil
	}
	extents, err := logstore.GetExtents(payload)
	if err != nil {
		return nil, err
	}
	for _, x := range extents {
		if !p.store.InFile(x.Addr, x.Pages()) {
			return nil, p.badRun(ref)
		}
		pages = append(pages, Extent{x.Addr, x.Pages()})
	}
	return pages, nil
}
