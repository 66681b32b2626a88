// Package beside reads a database file while another process writes it. The engine that follows the log of a writer
// is in package mvcc, follow.go; this package opens a new engine whenever the present one has lost track of the
// log.
package beside

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// Follower reads a database file that another process writes, or may start to write. Each transaction sees what is
// in the file when the transaction begins. A Follower has an engine that follows the log. When the writer has
// reused pages that the engine needs, the Follower opens another engine, and closes the old one when its
// transactions have ended.
type Follower struct {
	fs   vfs.FS
	path string
	opts mvcc.Options

	mu      sync.Mutex     // only one goroutine at a time looks for new commits; guards the fields below
	engine  *mvcc.Engine   // the newest engine; nil after an error
	damaged uint64         // number of the checkpoint with which the file was last found damaged; 0: it was not
	retired sync.WaitGroup // engines being closed
	closed  bool
}

const (
	reloadLimit  = 10 * time.Second // longest time that load tries to open a file that changes too fast
	reloadTries  = 3                // further tries of load while the checkpoint does not change: after them, the file counts as damaged
	followerTry  = 100              // tries of an operation that gets ErrSnapshotTooOld because of a fast writer
	reloadPause  = time.Millisecond
	besidePrefix = "flashdbm: reading beside the writer: "
)

// Open opens the database file for reading beside a writer.
func Open(fs vfs.FS, path string, opts mvcc.Options) (*Follower, error) {
	opts.Store.ReadOnly, opts.Store.Beside = true, true
	opts.Store.CacheBytes, opts.Store.Table = opts.MemoryLimit, &logstore.SegmentTable{}
	f := &Follower{fs: fs, path: path, opts: opts}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// load opens an engine on the present content of the file. Writes during the open may look like damage. Damage
// counts as real only if it stays for reloadTries tries without a new checkpoint. It then stays until there is a
// new checkpoint, so until then one try is enough. The caller holds mu.
func (f *Follower) load() error {
	end := time.Now().Add(reloadLimit)
	last := uint64(0)
	for tries := 0; ; tries++ {
		number, err := logstore.CheckpointNumber(f.fs, f.path)
		if err != nil {
			return err
		}
		if number != last {
			last, tries = number, 0
			if number == f.damaged {
				tries = reloadTries
			}
		}
		e, err := mvcc.Open(f.fs, f.path, f.opts)
		switch {
		case err == nil:
			f.engine, f.damaged = e, 0
			return nil
		case !errors.Is(err, logstore.ErrCorrupt) && !errors.Is(err, logstore.ErrFormat) && !tooOld(err):
			return err
		case tries >= reloadTries:
			f.damaged = number
			return err
		case time.Now().After(end):
			return err
		}
		time.Sleep(reloadPause)
	}
}

// latest returns an engine that shows everything that was in the file when the call began.
func (f *Follower) latest() (*mvcc.Engine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, mvcc.ErrClosed
	}
	if f.engine != nil {
		lost, err := f.engine.CatchUp()
		if !lost {
			return f.engine, nil
		}
		if err != nil && !errors.Is(err, logstore.ErrCorrupt) && !tooOld(err) { // an error of the system
			f.retire()
			return nil, err
		}
		f.retire()
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f.engine, nil
}

// retire closes the engine when its transactions have ended. The caller holds mu.
func (f *Follower) retire() {
	e := f.engine
	f.engine = nil
	f.retired.Go(func() { _ = e.Close() }) // the error does not matter, because the engine wrote nothing
}

// with calls fn with the latest engine. If the writer reuses pages that fn needs, with calls
// fn again with a newer engine.
func (f *Follower) with(fn func(*mvcc.Engine) error) error {
	for try := 0; ; try++ {
		e, err := f.latest()
		if err != nil {
			return err
		}
		err = fn(e)
		if errors.Is(err, mvcc.ErrClosed) { // another goroutine has retired the engine
			continue
		}
		if !tooOld(err) || try == followerTry {
			return err
		}
	}
}

// Begin starts a read-only transaction. The transaction may move to a newer snapshot (Renew) if a fast writer has
// made its own too old.
func (f *Follower) Begin(o mvcc.TxOptions) (tx *mvcc.Tx, err error) {
	if !o.ReadOnly {
		return nil, logstore.ErrReadOnly
	}
	if tx, err = f.begin(o); err != nil {
		return nil, err
	}
	left := followerTry
	tx.RenewBy(func() (*mvcc.Tx, error) {
		if left == 0 {
			return nil, mvcc.ErrSnapshotTooOld
		}
		left--
		return f.begin(mvcc.TxOptions{ReadOnly: true})
	})
	return tx, nil
}

func (f *Follower) begin(o mvcc.TxOptions) (tx *mvcc.Tx, err error) {
	err = f.with(func(e *mvcc.Engine) error {
		tx, err = e.Begin(o)
		return err
	})
	return tx, err
}

// GetCopy, Exists, Len, Use and Stats are the methods of mvcc.Engine. spaced reports whether the file is flagged as
// one with keyspaces; the flag is set before any record is stored in their form.
func (f *Follower) GetCopy(key []byte) (value []byte, ok, spaced bool, err error) {
	err = f.with(func(e *mvcc.Engine) (err error) {
		value, ok, err = e.GetCopy(key)
		spaced = mvcc.Keyspaces(e)
		return err
	})
	return value, ok, spaced, err
}

// Exists is mvcc.Engine.Exists: see GetCopy for spaced.
func (f *Follower) Exists(key []byte) (ok, spaced bool, err error) {
	err = f.with(func(e *mvcc.Engine) (err error) {
		ok, err = e.Exists(key)
		spaced = mvcc.Keyspaces(e)
		return err
	})
	return ok, spaced, err
}

// Len is mvcc.Engine.Len.
func (f *Follower) Len() (n int64, err error) {
	err = f.with(func(e *mvcc.Engine) (err error) {
		n, err = e.Len()
		return err
	})
	return n, err
}

// Use calls fn with the latest engine, which stays open during the call. If the writer was too fast, Use
// calls fn again.
func (f *Follower) Use(fn func(*mvcc.Engine) error) error {
	return f.with(func(e *mvcc.Engine) error { return e.Use(func() error { return fn(e) }) })
}

// Stats is mvcc.Engine.Stats.
func (f *Follower) Stats() (s mvcc.Stats, err error) {
	err = f.with(func(e *mvcc.Engine) (err error) {
		s, err = e.Stats()
		return err
	})
	return s, err
}

// Path returns the path of the file.
func (f *Follower) Path() string { return f.path }

// Close waits until all transactions have ended, and closes the file. A second call does nothing.
func (f *Follower) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	e := f.engine
	f.mu.Unlock()
	f.retired.Wait()
	if e == nil {
		return nil
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("%s%w", besidePrefix, err)
	}
	return nil
}

// tooOld reports whether an error means that a newer snapshot may succeed.
func tooOld(err error) bool { return errors.Is(err, mvcc.ErrSnapshotTooOld) }
