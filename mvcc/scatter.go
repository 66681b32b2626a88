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

// Logged values lie in the order of their writes. A scan of values that were not written in key order comes to another page with each of
// them: that took four times as long with all in memory, and takes four pages for each page of values from a device. So a leaf whose values
// were scanned out of order scatterOften times has them logged once more, in key order, by background work.
//
// Invariants:
//
//  1. Values move as the cleaner moves them: only if the newest tree refers to exactly this place, with their redo, and nobody notices.
//  2. One byte is written for scatterOften bytes that scans have come to out of order. A leaf's count begins anew when its values are to move.
//  3. A scan waits for nobody. It counts, and leaves the key of a leaf if nobody else is at the list just then; else the next scan does.
//  4. Commits go first: values move only while there is room within the bound of the file, and none that was asked for; and not where the
//     size of the file is limited, where all that is free is for commits.
//  5. A file comes to rest behind the last scan that has values moved, as behind the last commit.
//  6. What scans have asked for and found no room is forgotten: they will ask again.
const (
	scatterOften  = 8       // scans
	scatterShare  = 4       // of a leaf's logged values, a quarter is out of order: else it is taken for in order
	scatterSlots  = 1 << 14 // of counts: leaves may share one, and have their values moved earlier then
	scatterLeaves = 1 << 10 // leaves that may wait to have their values moved,
	scatterAtOnce = 64      // and that are looked at in one round of background work
	scatterValues = 16      // that a cursor counts at once
)

// scattered are the counts of values that scans have come to out of order, and the leaves whose values are to move. Any goroutine.
type scattered struct {
	often  uint32 // scatterOften; 0: scans are not counted
	counts [scatterSlots]atomic.Uint32
	mu     sync.Mutex
	keys   [][]byte // first keys of leaves
}

// scanOften returns how many scans out of order are worth writing the values anew.
func scanOften(o *Options) uint32 {
	if o.ScanOften > 0 {
		return uint32(o.ScanOften)
	}
	if o.Manual || o.Store.ReadOnly || o.KeepInline {
		return 0
	}
	return scatterOften
}

// scanned counts n values of a leaf that a scan came to out of order, and reports whether background work should be woken.
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

// take returns keys of some leaves, in their order.
func (s *scattered) take() (keys [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortFunc(s.keys, bytes.Compare)
	n := min(len(s.keys), scatterAtOnce)
	keys, s.keys = slices.Clone(s.keys[:n]), slices.Delete(s.keys, 0, n)
	return keys
}

// forget has no leaf wait any more.
func (s *scattered) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = nil
}

// scanOrder finds whether the logged values of a scan are in order.
type scanOrder struct {
	last         logstore.Addr // 0: no value yet
	values, jump int           // jump: values that are not in the page of the one before them, nor in one beside it
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

// scattered reports whether too many were out of order.
func (o *scanOrder) scattered() bool { return o.jump > 0 && o.jump*scatterShare >= o.values }

// noteScan counts what a scan has come to in a leaf.
func (m *maintenance) noteScan(leaf btree.Node, o *scanOrder) {
	if o.scattered() && m.cleaner.scattered.scanned(leaf, o.jump) {
		m.due.Store(true)
		m.rouse()
	}
}

// moveScanned has the values of some leaves move that scans came to out of order, and reports whether there were such leaves. The caller
// holds checkpoints.mu.
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
			continue // damage stays where it is; or two keys lead to the leaf by now
		}
		values = append(values, found...)
	}
	room, err := c.move(values, c.pressure.reserveInBound)
	if err != nil || !room {
		c.scattered.forget()
		return true, err
	}
	if c.opts.Durability == Durable {
		err = c.log.syncSettled() // until then the pages that have moved values stay in memory
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

// outOfOrder returns the logged values of the leaf with the key, if too many of them are out of order. The keys live as long as the snapshot.
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
		if _, err := snap.Logged(cell.Key(), ref); err != nil { // it is in memory then, before the token is needed
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
