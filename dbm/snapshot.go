package dbm

import (
	"runtime"
	"runtime/debug"
	"sync"

	"flashdbm/mvcc"
)

// Snapshot is one moment of a database for several goroutines. Each of them reads in its own read-only
// transaction, from View or Begin, and all these transactions see the same state. Any number of goroutines may
// use it.
//
// A snapshot holds its versions like an open transaction. With all its transactions it counts as one transaction
// in Stats, DB.Close waits for it, and it gets ErrSnapshotTooOld for the same reasons as a transaction of its age.
// A snapshot that becomes unreachable is closed when the garbage collector finds it.
type Snapshot struct {
	db      *DB
	now     int64      // time of its beginning, in the unit of expiry times; all its transactions use it
	mu      sync.Mutex // guards the fields below, and root itself: siblings are begun one at a time
	root    *mvcc.Tx   // holds the snapshot and reads nothing; nil once closed
	cleanup runtime.Cleanup
}

// Snapshot returns the present moment, as View would see it. The caller must close it. ErrClosed; beside a writer
// ErrSnapshotTooOld.
func (db *DB) Snapshot() (*Snapshot, error) {
	root, err := db.begin(mvcc.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, public(err)
	}
	s := &Snapshot{db: db, root: root, now: db.expiry.now()}
	s.cleanup = runtime.AddCleanup(s, func(root *mvcc.Tx) { root.Rollback() }, root)
	return s, nil
}

// View runs fn in a read-only transaction that sees the snapshot, like DB.View. ErrTxDone if the snapshot is
// closed. Close does not end a View that is under way.
func (s *Snapshot) View(fn func(*Tx) error) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	tx, err := s.begin(true)
	if err != nil {
		return err
	}
	return tx.view(fn)
}

// Begin starts a read-only transaction that sees the snapshot. The caller must end it: see DB.Begin. The
// transaction must be used by one goroutine and may outlive the snapshot. ErrTxDone if the snapshot is closed.
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

// Close ends the snapshot: no transaction can begin at it any more. Transactions under way go on, and the versions
// of the snapshot are held until the last of them ends. A second call does nothing.
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
