package vfs

// maxSectorUnits is the largest number of units at which a unit is a single sector: see [Mem.Units].
const maxSectorUnits = 12

// unit is a part of the unsynced changes that is on disk as a whole or not at all: the changes of one sector or
// one page by one call, all changes of a file's size, or one change of a name.
type unit struct {
	ino         *inode // nil for a name
	first, last uint64 // seqs of its first and last change
	size        bool   // changes of the size, not of sectors
	sector      int64  // its first sector
}

// pageUnits and sectorUnits are the largest numbers of bytes in a unit.
const (
	pageUnits   = blockSize
	sectorUnits = SectorSize
)

// units lists the unsynced changes in a fixed order.
func (m *Mem) units(bytes int64) []unit {
	var units []unit
	for _, ino := range m.inodes {
		h := &ino.history
		for i, c := range h.entries {
			if i > 0 && joins(h.entries[i-1], c, bytes) {
				units[len(units)-1].last = c.seq
				continue
			}
			units = append(units, unit{ino: ino, first: c.seq, last: c.seq, sector: c.sector})
		}
		if n := len(h.sizes); n > 0 {
			units = append(units, unit{ino: ino, first: h.sizes[0].seq, last: h.sizes[n-1].seq, size: true})
		}
	}
	for _, c := range m.linkLog {
		units = append(units, unit{first: c.seq, last: c.seq})
	}
	return units
}

// joins reports whether change c belongs to the unit of prev, the change before it.
func joins(prev, c change, bytes int64) bool {
	return c.sector == prev.sector+1 && c.sector*SectorSize%bytes != 0
}

func (u unit) has(ino *inode, seq uint64, size bool) bool {
	return u.ino == ino && u.size == size && u.first <= seq && seq <= u.last
}

// byUnit keeps the changes that ok accepts.
func byUnit(ok func(ino *inode, seq uint64, size bool) bool) keep {
	return keep{
		sector: func(ino *inode, c change) bool { return ok(ino, c.seq, false) },
		size:   func(ino *inode, c sizeChange) bool { return ok(ino, c.seq, true) },
		link:   func(c linkChange) bool { return ok(nil, c.seq, false) },
		alloc:  func(*inode) bool { return true },
	}
}

// subsetUnits returns units of single sectors, or of pages if there would be too many sectors.
func (m *Mem) subsetUnits() []unit {
	units := m.units(sectorUnits)
	if len(units) > maxSectorUnits {
		units = m.units(pageUnits)
	}
	return units
}

// Units returns the number of parts of the unsynced changes; a power cut may leave any subset of the parts. A
// part is a single sector if that makes at most 12 parts, otherwise a page of 4,096 bytes. A file's size and
// each new or removed name is a part too.
func (m *Mem) Units() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.subsetUnits())
}

// CrashSubset is Crash that keeps the parts whose bits are set in the mask; bit 0 is the first of Units. Parts
// after bit 63 are lost.
func (m *Mem) CrashSubset(mask uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	units := m.subsetUnits()
	units = units[:min(len(units), 64)]
	return m.image(byUnit(func(ino *inode, seq uint64, size bool) bool {
		for i, u := range units {
			if u.has(ino, seq, size) {
				return mask>>i&1 != 0
			}
		}
		return false
	}))
}
