package dbm

import (
	"runtime"
	"runtime/debug"
	"sync"

	"flashdbm/mvcc"
)

// Snapshot is one moment of a database, which several goroutines read at once: each in a read-only transaction of its own from View or Begin,
// and all of these see the same. It may be used by any number of goroutines.
//
// It holds what it shows, as an open transaction does: with all its transactions it counts as one in Stats, Close of the database waits for it, and it gets ErrSnapshotTooOld
// for the same reasons as a transaction of its age. A snapshot that is dropped is closed when the collector finds it.
type Snapshot struct {
	db      *DB
	now     int64      // by the clock, in the unit of times: for all its transactions
	mu      sync.Mutex // guards the rest, and root, which siblings are begun from one at a time
	root    *mvcc.Tx   // reads nothing itself; nil once closed
	cleanup runtime.Cleanup
}

// Snapshot returns the present moment, of which View would see the same. The caller closes it. ErrClosed, ErrSnapshotTooOld beside a writer.
func (db *DB) Snapshot() (*Snapshot, error) {
	root, err := db.begin(mvcc.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, public(err)
	}
	s := &Snapshot{db: db, root: root, now: db.expiry.now()}
	s.cleanup = runtime.AddCleanup(s, func(root *mvcc.Tx) { root.Rollback() }, root)
	return s, nil
}

// View runs fn in a read-only transaction that sees the snapshot, like DB.View. ErrTxDone if the snapshot was closed before; Close does not
// end a View that is under way.
func (s *Snapshot) View(fn func(*Tx) error) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, err := s.begin(true)
	if err != nil {
		return err
	}
	return tx.view(fn)
}

// Begin starts a read-only transaction that sees the snapshot. The caller ends it: see DB.Begin. It belongs to one goroutine and may outlive
// the snapshot. ErrTxDone if the snapshot is closed.
func (s *Snapshot) Begin() (*Tx, error) {
	tx, err := s.begin(false)
	if err != nil {
		return nil, err
	}
	tx.onDrop()
	return tx, nil
}

func (s *Snapshot) begin(managed bool) (*Tx, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil, ErrTxDone
	}
	inner, err := s.root.Sibling()
	if err != nil {
		return nil, public(err)
	}
	tx := newTx(s.db, inner, TxOptions{ReadOnly: true}, managed)
	tx.now = s.now
	return tx, nil
}

// Close ends the snapshot: no transaction begins at it any more. Those that are under way go on, and what the snapshot held is held until the
// last of them ends. A second call does nothing.
func (s *Snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil
	}
	s.cleanup.Stop()
	root := s.root
	s.root = nil
	return public(root.Rollback())
}
