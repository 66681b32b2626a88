package vfs

// Loss says what a [Mem] shows of the pages of 4096 bytes that a failed
// Datasync or WriteOut was to write. Linux marks such pages clean. It drops
// clean pages when it likes, also while they are mapped, and who reads them
// after that is shown what the device has: mostly what was there before.
type Loss uint8

const (
	LoseAll   Loss = iota // what the device had before; at once, before the failed call returns
	LoseSome              // of each page, drawn by lot, that; or what was written, which the device then has, or has not
	LoseLater             // what was written, until Evict
)

// SetLoss sets that; LoseAll is the default. The seed is for LoseSome. Images
// inherit both.
func (m *Mem) SetLoss(l Loss, seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loss, m.lossSeed = l, seed
}

// Evict drops all pages that a failed Datasync or WriteOut has left clean. From
// then on they are what the device has: what they were when they were last
// durable.
func (m *Mem) Evict() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ino := range m.inodes {
		ino.evict(func(int64) fate { return droppedOld })
	}
}

// fate is what becomes of a page that a failed Datasync was to write.
type fate uint8

const (
	droppedOld fate = iota // it was not written
	droppedNew             // it was written
	stays                  // it is in the cache, and may have been written
)

// lose carries out what the Mem does behind a failed Datasync.
func (ino *inode) lose() {
	m := ino.mem
	switch m.loss {
	case LoseAll:
		ino.evict(func(int64) fate { return droppedOld })
	case LoseSome:
		ino.evict(func(block int64) fate {
			h := m.lossSeed ^ m.seq
			for _, x := range [...]uint64{uint64(ino.id), uint64(block)} {
				h = (h ^ x) * 0xBF58476D1CE4E5B9
				h ^= h >> 29
			}
			return fate(h >> 32 % 3)
		})
	}
}

// evict decides about the clean pages with changes that no Datasync has made
// durable. What was cut off or punched is not on record as pages, and stays as
// it is.
func (ino *inode) evict(of func(block int64) fate) {
	h := &ino.history
	var gone bitset // sectors that are durable from now on
	for i, c := range h.entries {
		block := c.sector / sectorsPerBlock
		if h.newest[c.sector] != int32(i+1) || h.dirty[block] != 0 || !ino.alloc.has(block) || c.sector*SectorSize >= ino.size {
			continue
		}
		content := ino.sector(c.sector)
		switch of(block) {
		case stays:
			continue
		case droppedOld:
			oldest := c
			for oldest.older >= 0 {
				oldest = h.entries[oldest.older]
			}
			if before := h.cell(oldest.before); before != nil {
				copy(content, before)
			} else {
				clear(content)
			}
			if end := ino.size - c.sector*SectorSize; end < SectorSize {
				clear(content[end:])
			}
		}
		if !isZero(content) {
			h.syncedAlloc.add(block)
		}
		gone.add(c.sector)
	}
	h.forget(gone)
}

// Drop makes the range what the device has.
func (f *memFile) Drop(off, n int64) error {
	err := f.look(func() {
		f.ino.evict(func(block int64) fate {
			if block*blockSize < off+n && (block+1)*blockSize > off {
				return droppedOld
			}
			return stays
		})
	})
	return rangeError("drop", f.name, off, n, err)
}
