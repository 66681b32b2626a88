package vfs

// maxSectorUnits is up to how many units are single sectors, see [Mem.Units].
const maxSectorUnits = 12

// unit is a part of the unsynced changes that is on disk as a whole or not at
// all: changes of one sector or one page by one call, all changes of a file's
// size, or one change of a name.
type unit struct {
	ino         *inode // nil for a name
	first, last uint64 // seqs of its changes
	size        bool   // of the size, not of sectors
	sector      int64  // the first one
}

// pageUnits and sectorUnits are the bytes that a unit holds at most.
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

// joins tells whether a change goes into the unit of the one before it.
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

// subsetUnits returns single sectors, or pages if those would be too many.
func (m *Mem) subsetUnits() []unit {
	units := m.units(sectorUnits)
	if len(units) > maxSectorUnits {
		units = m.units(pageUnits)
	}
	return units
}

// Units returns of how many parts the unsynced changes consist, any subset of
// which a power cut may leave: single sectors if there are 12 parts or less,
// else pages of 4096 bytes. A file's size and each new or removed name is a
// part too.
func (m *Mem) Units() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.subsetUnits())
}

// CrashSubset is Crash with the parts that are set in the mask, bit 0 being the
// first of Units. Parts past bit 63 are lost.
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
