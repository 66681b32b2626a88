package mvcc

import (
	"time"

	"flashdbm/internal/event"
)

// LeaseOptions say how transactions hold their snapshots.
type LeaseOptions struct {
	MaxAge time.Duration // age from which on a transaction gets ErrSnapshotTooOld; 0 for none
	Trace  bool          // remember where transactions began
}

// Aging reports whether the age of the transaction is bounded: then its reads must be between Enter and Leave.
func (tx *pinned) Aging() bool { return tx.lease != nil && tx.e.opts.Leases.MaxAge > 0 }

// Enter begins a call of a transaction whose age is bounded; Leave ends the call. ErrSnapshotTooOld: the snapshot was
// taken back.
func (tx *pinned) Enter() error {
	if !tx.lease.Enter(tx.e.opts.Leases.MaxAge) {
		return ErrSnapshotTooOld
	}
	return nil
}

// Leave: see Enter.
func (tx *pinned) Leave() { tx.lease.Leave() }

// endLease precedes the end of a transaction. If the transaction has lost its snapshot, it is over: endLease returns
// lost, and ErrSnapshotTooOld or what went wrong. An update that has read nothing depends on no snapshot, and goes on
// with a new place in the registry.
func (tx *Tx) endLease() (lost bool, err error) {
	l, e := tx.lease, tx.e
	if l == nil {
		return false, nil
	}
	e.readers.leases.Remove(l)
	if !l.End() {
		return false, nil
	}
	tx.shared = nil
	if tx.slot, err = e.readers.enter(); err != nil { // closed: everything that it saw is on the disk
		tx.forget()
		return true, err
	}
	if tx.blind() && !tx.readOnly {
		return false, nil
	}
	err = tx.awaitSnapshotDurable(nil)
	tx.end()
	if err == nil {
		err = ErrSnapshotTooOld
	}
	return true, err
}

// toFile precedes each write to the file by a transaction itself. The transaction's place in the registry may be
// taken back during the write, or is lost already, and Close would not see the transaction there. So toFile counts it
// as unpinned; the caller calls unpinned.leave afterwards. ErrClosed if Close may have looked already.
func (tx *pinned) toFile() error {
	e := tx.e
	e.readers.unpinned.enter()
	if l := tx.lease; l != nil && l.Gone() && e.readers.closed.Load() {
		e.readers.unpinned.leave()
		return ErrClosed
	}
	return nil
}

// endOldSnapshots takes back the snapshots that are older than allowed, and frees what was kept for them.
func (m *maintenance) endOldSnapshots() error {
	now := time.Now()
	taken := false
	for _, l := range m.readers.leases.Before(now.Add(-m.opts.Leases.MaxAge)) {
		if l.TakeBack() {
			taken = true
			m.post(event.Event{Kind: event.SnapshotEnded, Took: now.Sub(l.Began()), Bytes: m.store.HeldBytes(), Began: l.Where()})
		}
	}
	if !taken {
		return nil
	}
	return m.tree.withTree(func() error {
		if err := m.Failed(); err != nil {
			return err
		}
		m.tree.reclaim()
		return nil
	})
}

// warnAge is the age from which an event reports that a snapshot holds back space, and the least time between two
// such events.
const warnAge = time.Minute

// warnOfOldSnapshot posts what an old snapshot holds back. last is when it did so before.
func (m *maintenance) warnOfOldSnapshot(now, last time.Time) time.Time {
	oldest, ok := m.readers.oldest(now.UnixNano())
	if !ok || oldest.Since() == 0 || now.Sub(last) < warnAge {
		return last
	}
	age, held := now.Sub(time.Unix(0, oldest.Since())), m.store.HeldBytes()
	if age < warnAge || held == 0 {
		return last
	}
	began := ""
	if l := m.readers.leases.Oldest(); l != nil {
		began = l.Where()
	}
	m.post(event.Event{Kind: event.OldSnapshot, Took: age, Bytes: held, Began: began})
	return now
}
