package mvcc

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"flashdbm/internal/btree"
	"flashdbm/internal/writeset"
	"flashdbm/logstore"
	"flashdbm/override"
)

// Logged values are in the order of their writes. A scan of values that were not written in key order comes to a
// different page with each of them: with everything in memory that took four times as long, and from a device it
// reads four pages for each page of values. So if the values of a leaf were scanned out of order scatterOften times,
// background work logs them once more, in key order.
//
// Invariants:
//
//  1. Values move as in the cleaner: only if the newest tree refers to exactly the old place, together with their
//     redo, and unnoticed by transactions.
//  2. One byte is written for scatterOften bytes that scans have read out of order. A leaf's count starts again when
//     its values are to move.
//  3. A scan waits for nobody. It counts, and adds the leaf's key to the list if nobody else is at the list;
//     otherwise a later scan does.
//  4. Commits go first: values move only while there is room within the bound of the file and no commit has asked for
//     room. They do not move in a file with a size limit, where all free space is for commits.
//  5. A file comes to rest after the last scan that made values move, as after the last commit.
//  6. If there was no room for what scans have asked for, it is forgotten: scans will ask again.
const (
	scatterOften  = 8       // scans
	scatterShare  = 4       // values count as out of order if at least a quarter of those that a scan has read are
	scatterSlots  = 1 << 14 // number of counts. Leaves may share a count; their values then move earlier
	scatterLeaves = 1 << 10 // leaves that may wait to have their values moved,
	scatterAtOnce = 64      // and leaves that one round of background work looks at
	scatterValues = 16      // values that a cursor counts at once
)

// scattered has the counts of values that scans have read out of order, and the leaves whose values are to move. Any
// goroutine may use it.
type scattered struct {
	often  uint32 // scatterOften; 0: scans are not counted
	counts [scatterSlots]atomic.Uint32
	mu     sync.Mutex
	keys   [][]byte // first keys of the leaves
}

// scanOften returns after how many scans out of order it is worth writing the values again; 0 for never.
func scanOften(o *Options) uint32 {
	if o.ScanOften > 0 {
		return uint32(o.ScanOften)
	}
	if o.Manual || o.Store.ReadOnly || o.KeepInline {
		return 0
	}
	return scatterOften
}

// scanned counts n values of a leaf that a scan has read out of order, and reports whether background work should be
// woken.
func (s *scattered) scanned(leaf btree.Node, n int) bool {
	if s.often == 0 {
		return false
	}
	key := leaf.Cell(0).Key()
	slot := &s.counts[writeset.HashKey(key)%scatterSlots]
	if slot.Add(uint32(n)) < s.often*uint32(leaf.Count()) || !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	if len(s.keys) >= scatterLeaves {
		return false
	}
	slot.Store(0)
	s.keys = append(s.keys, bytes.Clone(key))
	return len(s.keys) == scatterAtOnce
}

// any reports whether leaves wait.
func (s *scattered) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys) > 0
}

// take removes the keys of some leaves from the list, and returns them in order.
func (s *scattered) take() (keys [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.keys, bytes.Compare)
	n := min(len(s.keys), scatterAtOnce)
	keys, s.keys = slices.Clone(s.keys[:n]), slices.Delete(s.keys, 0, n)
	return keys
}

// forget empties the list.
func (s *scattered) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = nil
}

// scanOrder finds out whether the logged values of a scan are in order.
type scanOrder struct {
	last         logstore.Addr // 0: no value yet
	values, jump int           // jump: values that are neither in the page of the value before nor near it
}

// next notes the next value of a scan, in either direction.
func (o *scanOrder) next(ref btree.Ref) {
	a := logstore.Place(ref.ID).Addr()
	if o.last != 0 && (a+logstore.MaxSpan < o.last || a > o.last+logstore.MaxSpan) {
		o.jump++
	}
	o.last = a
	o.values++
}

// scattered reports whether too many values were out of order.
func (o *scanOrder) scattered() bool { return o.jump > 0 && o.jump*scatterShare >= o.values }

// noteScan counts the values that a scan has read in a leaf.
func (m *maintenance) noteScan(leaf btree.Node, o *scanOrder) {
	if o.scattered() && m.cleaner.scattered.scanned(leaf, o.jump) {
		m.due.Store(true)
		m.rouse()
	}
}

// moveScanned moves the values of some leaves that scans have read out of order, and reports whether there were such
// leaves. The caller holds checkpoints.mu.
func (c *cleaner) moveScanned() (moved bool, err error) {
	keys := c.scattered.take()
	if len(keys) == 0 || c.room.limited() || c.pressure.crowd.asked.Load() > 0 {
		return false, nil
	}
	slot := c.readers.registry.Acquire(&c.readers.views)
	defer slot.Release()
	snap := c.pages.At(slot.Seq())
	var values []placedValue
	for _, key := range keys {
		found, err := outOfOrder(&snap, key)
		if n := len(values); err != nil || n > 0 && len(found) > 0 && bytes.Compare(found[0].key, values[n-1].key) <= 0 {
			continue // a damaged leaf stays as it is; or two keys lead to the same leaf by now
		}
		values = append(values, found...)
	}
	room, err := c.move(values, c.pressure.reserveInBound)
	if err != nil || !room {
		c.scattered.forget()
		return true, err
	}
	if c.opts.Durability == Durable {
		err = c.log.syncCommitted() // until then the pages with the moved values stay in memory
	}
	return true, err
}

// reserveInBound finds room within the bound of the file.
func (p *pressure) reserveInBound(extra int64) error {
	err := p.store.ReserveWithin(logstore.ForWrites, extra, 0)
	if err == logstore.ErrBound {
		return logstore.ErrFull
	}
	return err
}

// outOfOrder returns the logged values of the leaf with the key, if too many of them are out of order. The keys are
// valid as long as the snapshot.
func outOfOrder(snap *override.Snapshot, key []byte) (found []placedValue, err error) {
	var c btree.Cursor
	c.Reset(snap, override.Root)
	if !c.Seek(key) {
		return nil, c.Err()
	}
	leaf, i, end, err := c.Stretch(nil)
	if err != nil {
		return nil, err
	}
	var order scanOrder
	for ; i < end; i++ {
		cell := leaf.Cell(i)
		if cell.Kind() != btree.Logged {
			continue
		}
		ref := cell.Ref()
		if _, err := snap.Logged(cell.Key(), ref); err != nil { // reads it into memory now, before the token is taken
			return nil, err
		}
		order.next(ref)
		found = append(found, placedValue{cell.Key(), ref})
	}
	if !order.scattered() {
		return nil, nil
	}
	return found, nil
}
