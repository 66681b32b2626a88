package vfs

// Loss says what a [Mem] shows of the 4,096-byte pages that a failed Datasync or WriteOut was to write. Linux
// marks such pages clean. It may drop clean pages at any time, even while they are mapped, and later reads show
// what the device has, which is mostly what was there before.
type Loss uint8

const (
	LoseAll   Loss = iota // what the device had before, at once: before the failed call returns
	LoseSome              // of each page by lot: what the device had before, or what was written, which the device then has or has not
	LoseLater             // what was written, until Evict
)

// SetLoss sets the Loss; the default is LoseAll. LoseSome uses the seed. Images inherit both.
func (m *Mem) SetLoss(l Loss, seed uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loss, m.lossSeed = l, seed
}

// Evict drops all pages that a failed Datasync or WriteOut has left clean. Reads then show what the device has:
// the last durable content.
func (m *Mem) Evict() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ino := range m.inodes {
		ino.evict(func(int64) fate { return droppedOld })
	}
}

// fate is what happens to a page that a failed Datasync was to write.
type fate uint8

const (
	droppedOld fate = iota // dropped from the cache; the device has the old content
	droppedNew             // dropped from the cache; the device has the new content
	stays                  // in the cache; the device has the old or the new content
)

// lose applies the Mem's Loss after a failed Datasync.
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

// evict decides about the clean pages that have changes which no Datasync has made durable. Ranges that were
// cut off or punched have no pages on record and stay as they are.
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

// Advise makes the range show what the device has, if the advice is DontNeed.
func (f *memFile) Advise(off, n int64, a Advice) error {
	if a != DontNeed {
		return nil
	}
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
