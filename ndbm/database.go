//go:build linux

package main

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"flashdbm/internal/beside"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// A database is an open .pag file. Any threads may call it at once.
//
// Several processes may have the file open for writing and take turns. So a process does not hold the lock for
// as long as it has the database open. A call that finds the lock free takes it. The process releases the lock
// when another process asks for it, or when there was no call for a while. The engine is then closed, and the
// next call opens it again.
//
//	shut --- a call gets the lock, opens the engine ---> running
//	running --- watch: asked, or idle; waits for the calls under way, closes the engine, unlocks ---> shut
//
// No call is under way when the state changes: every call holds mu for reading, and the state is changed with mu
// held for writing.
//
// A database opened for reading never asks for the lock. If no process is writing, the reader holds a lock
// that readers share, and releases it when a process wants to write. If a process is writing, the reader
// follows that process's log:
//
//	shut --- no lock to be had ---> following --- watch: the lock is free ---> running
//
// In the state following, each call checks the file for changes, and copies and verifies every page that it reads.
// That is slower, so the reader takes the lock when it is free.
type database struct {
	lock    fileLock
	file    vfs.File // stays open while shut
	options mvcc.Options
	idle    time.Duration // time without a call after which the lock is released unasked

	mu     sync.RWMutex
	owned  atomic.Bool      // mu is held for writing; set and cleared by its holder
	engine *mvcc.Engine     // nil unless running; guarded by mu
	beside *beside.Follower // nil unless following; guarded by mu
	quit   chan struct{}    // ends the watch; nil while shut; guarded by mu
	gave   time.Time        // when the lock was released because another process had asked for it; guarded by mu
	closed bool             // guarded by mu

	calls  atomic.Uint64 // number of calls, so that the watch sees whether the database is in use
	wanted atomic.Int32  // number of goroutines that try to own the database; new calls let them go first
	keys   keys          // form of the keys in the engine's file; guarded by mu
	shown  shown         // the tree that the front library reads without a call; guarded by mu
	kept   *atomic.Bool  // true: the engine's mapping must stay, because a reader may use it for ever; guarded by mu
}

const (
	askedEvery = 4 * time.Millisecond   // how often the holder of the lock looks whether another process asks for it
	idleAfter  = time.Second            // see database.idle
	unlockedIn = 100 * time.Millisecond // how often a follower looks whether the lock is free
	leftAfter  = 5 * time.Second        // a call that is still running this long after close was called is assumed never to end
	tryEvery   = 100 * time.Microsecond // how often a goroutine that tries to own the database tries again
	letOwn     = 20                     // for how many such tries a new call waits for that goroutine
	letOthers  = 3 * time.Millisecond   // how long a process that was asked for the lock does not take it again; waiting processes try every millisecond
)

// settings are the arguments of open.
type settings struct {
	readOnly bool
	posix    bool // the descriptor is shared with another process, so the lock must belong to this process and not to the descriptor
	durable  bool // each store is synced
	still    *still
}

func open(fd uintptr, s settings) (*database, error) {
	file, err := vfs.FromDescriptor(fd, "the .pag file")
	if err != nil {
		return nil, err
	}
	d := &database{
		file:  file,
		lock:  fileLock{fd: fd, posix: s.posix, exclusive: !s.readOnly},
		idle:  idleAfter,
		shown: shown{still: s.still, wait: goneAfter},
		options: mvcc.Options{
			Store:      logstore.Options{ReadOnly: s.readOnly},
			Durability: mvcc.WriteThrough, FlushInterval: time.Second,
			MemoryLimit: memoryLimit(), RedoLimit: redoLimit,
		},
	}
	if s.durable {
		d.options.Durability = mvcc.Durable
	}
	return d, nil
}

const (
	redoLimit   = 32 << 20
	mostMemory  = 256 << 20 // the default of Go programs
	leastMemory = 64 << 20
)

// memoryLimit is a sixteenth of the machine's memory. With more memory, more stores are merged into the tree at a
// time, and pages are written less often.
func memoryLimit() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return leastMemory
	}
	return min(max(int64(s.Totalram)*int64(s.Unit)/16, leastMemory), mostMemory)
}

// enter begins a call: the state does not change until leave. errBusy: another process holds the lock and has been
// asked for it; call again in a millisecond.
func (d *database) enter() error {
	for wait := 0; d.wanted.Load() > 0 && wait < letOwn; wait++ {
		time.Sleep(tryEvery)
	}
	for {
		d.mu.RLock()
		if d.engine != nil || d.beside != nil {
			d.calls.Add(1)
			return nil
		}
		d.mu.RUnlock()
		if err := d.start(); err != nil {
			return err
		}
	}
}

// read calls fn, within a call, with an engine that shows the present content of the file, and the form of its
// keys. If the writer reused a page that fn was reading, fn is called again.
func (d *database) read(fn func(*mvcc.Engine, keys) error) error {
	if d.engine != nil {
		return fn(d.engine, d.keys)
	}
	return d.beside.Use(func(e *mvcc.Engine) error {
		k, err := keysOf(e) // each time, because the writing process may have enabled keyspaces
		if err != nil {
			return err
		}
		return fn(e, k)
	})
}

func (d *database) leave() { d.mu.RUnlock() }

func (d *database) own() {
	d.mu.Lock()
	d.owned.Store(true)
}

func (d *database) disown() {
	d.owned.Store(false)
	d.mu.Unlock()
}

// tryOwn is own for callers that must not wait for ever. errLeft: a call never ends, because a signal handler of
// the program has left it by longjmp; mu is then held for reading for ever. A goroutine that waits in Lock would
// block all later readers, so tryOwn polls instead. New calls wait a little while a goroutine polls; otherwise
// overlapping calls could keep it from ever owning mu.
func (d *database) tryOwn() error {
	if err := d.try(d.mu.TryLock); err != nil {
		return err
	}
	d.owned.Store(true)
	return nil
}

func (d *database) try(lock func() bool) error {
	if lock() {
		return nil
	}
	d.wanted.Add(1)
	defer d.wanted.Add(-1)
	since := time.Now()
	for !lock() {
		if d.owned.Load() { // the owner opens or closes the engine, which takes a bounded time
			since = time.Now()
		} else if time.Since(since) > leftAfter {
			return errLeft
		}
		time.Sleep(tryEvery)
	}
	return nil
}

// start opens the engine or follows the writer, unless the database is running
// or following already.
func (d *database) start() error {
	d.own()
	defer d.disown()
	switch {
	case d.closed:
		return mvcc.ErrClosed
	case d.engine != nil || d.beside != nil:
		return nil
	}
	if !d.options.Store.ReadOnly {
		if err := d.acquire(); err != nil {
			return err
		}
		return d.run()
	}
	switch err := d.tryShared(); err {
	case nil:
		return d.run()
	case errBusy:
		return d.follow()
	default:
		return err
	}
}

// tryShared takes the lock of readers, unless a process writes or asks to. mu is held for writing.
func (d *database) tryShared() error {
	if time.Since(d.gave) < letOthers || d.lock.asked() {
		return errBusy
	}
	return d.lock.try()
}

// follow opens the database beside the writing process. mu is held for writing.
func (d *database) follow() error {
	f, err := beside.Open(oneFile{file: d.file}, d.file.Name(), d.options)
	if err != nil {
		return err
	}
	d.beside, d.quit = f, make(chan struct{})
	go d.watchLock(d.quit)
	return nil
}

// watchLock shuts a following database when the lock is free.
func (d *database) watchLock(quit chan struct{}) {
	for {
		select {
		case <-quit:
			return
		case <-time.After(unlockedIn):
		}
		if d.lock.held() || d.lock.asked() {
			continue
		}
		d.own()
		if d.quit == quit {
			d.shut() // the next call takes the lock
		}
		d.disown()
		return
	}
}

// acquire takes the lock, or asks for it and returns errBusy. mu is held for writing.
func (d *database) acquire() error {
	if time.Since(d.gave) < letOthers {
		return errBusy
	}
	return d.lock.acquire()
}

// run opens the engine. mu is held for writing, and this process has the lock.
func (d *database) run() error {
	d.kept = new(atomic.Bool)
	e, err := mvcc.Open(oneFile{d.file, d.kept}, d.file.Name(), d.options)
	if err != nil {
		d.lock.release()
		return err
	}
	if d.keys, err = keysOf(e); err != nil {
		err = errors.Join(err, e.Close())
		d.lock.release()
		return err
	}
	d.engine, d.quit = e, make(chan struct{})
	d.show()
	go d.watch(d.quit)
	return nil
}

// shut closes the engine and releases the lock. mu is held for writing.
func (d *database) shut() error {
	if d.beside != nil {
		close(d.quit)
		err := d.beside.Close()
		d.beside, d.quit = nil, nil
		return err
	}
	if d.engine == nil {
		return nil
	}
	close(d.quit)
	d.kept.Store(!d.shown.hide())
	err := d.engine.Close()
	d.engine, d.quit = nil, nil
	if uerr := d.lock.release(); err == nil {
		err = uerr
	}
	return err
}

// show lets the front library read the tree directly, if the tree has exactly the keys of ndbm. mu is held for
// writing, and the engine runs.
func (d *database) show() {
	if !d.keys.shifted {
		d.shown.show(d.engine)
	}
}

func (d *database) shownLate() bool { return !d.keys.shifted && d.shown.due(d.engine) }

// used returns the number of calls so far. If the tree could not be shown at open, because there was much to redo,
// used shows it as soon as possible. ok is false if the database was shut in the meantime: the memory of the front
// library may then be gone.
func (d *database) used(quit chan struct{}) (calls uint64, ok bool) {
	d.mu.RLock()
	late := false
	if ok = d.quit == quit; ok {
		calls, late = d.calls.Load()+d.shown.calls(), d.shownLate()
	}
	d.mu.RUnlock()
	if late {
		d.own()
		if d.quit == quit {
			d.show()
		}
		d.disown()
	}
	return calls, ok
}

// watch shuts the database when another process asks for the lock, or when there was no call for the time idle.
func (d *database) watch(quit chan struct{}) {
	var calls uint64
	since := time.Now()
	for {
		select {
		case <-quit:
			return
		case <-time.After(askedEvery):
		}
		n, ok := d.used(quit)
		if !ok {
			return
		}
		asked := d.lock.asked()
		if n != calls {
			calls, since = n, time.Now()
		}
		if !asked && time.Since(since) < d.idle {
			continue
		}
		if asked { // own lets no further call in
			d.own()
		} else if d.tryOwn() != nil {
			continue
		}
		if d.quit == quit { // the database was not shut, or shut and opened again, in the meantime
			d.shut() // an error is no loss: all commits are in the log, where the next process to open the file finds them
			if asked {
				d.gave = time.Now()
			}
		}
		d.disown()
		return
	}
}

// truncate removes every record and everything else from the file.
func (d *database) truncate() error {
	if err := d.tryOwn(); err != nil {
		return err
	}
	defer d.disown()
	if d.closed {
		return mvcc.ErrClosed
	}
	d.shut()
	if err := d.acquire(); err != nil {
		return err
	}
	if err := d.file.Truncate(0); err != nil {
		d.lock.release()
		return err
	}
	return d.run()
}

// sync makes every store that has returned durable.
func (d *database) sync() error {
	if err := d.try(d.mu.TryRLock); err != nil {
		return err
	}
	defer d.mu.RUnlock()
	if d.engine == nil || d.options.Store.ReadOnly { // the file was synced when the lock was released
		return nil
	}
	return d.engine.Sync()
}

// letGo syncs, and releases the lock until the next call.
func (d *database) letGo() error {
	if err := d.tryOwn(); err != nil {
		return err
	}
	defer d.disown()
	return d.shut()
}

// cancel withdraws the request for the lock.
func (d *database) cancel() {
	if d.tryOwn() != nil {
		return
	}
	defer d.disown()
	d.lock.withdraw()
}

// close waits for the calls under way, syncs, and closes the file.
func (d *database) close() error {
	if err := d.tryOwn(); err != nil {
		return err
	}
	defer d.disown()
	if d.closed {
		return mvcc.ErrClosed
	}
	d.closed = true
	err := d.shut()
	d.lock.withdraw()
	if cerr := d.file.Close(); err == nil {
		err = cerr
	}
	return err
}

// oneFile is a file system with one file, which is open already and stays open.
type oneFile struct {
	file vfs.File
	kept *atomic.Bool
}

func (f oneFile) Open(string, int, fs.FileMode) (vfs.File, error) {
	return keptFile{f.file, f.kept}, nil
}
func (oneFile) Remove(string) error  { return errors.ErrUnsupported }
func (oneFile) SyncDir(string) error { return nil } // the front library has done that

// keptFile is a file whose Close, Lock and Unlock do nothing: the database does that itself.
type keptFile struct {
	vfs.File
	kept *atomic.Bool // see database.kept; nil: nothing is mapped
}

// Map excludes the mapping from forked children. In a child the mapping would keep the file description open,
// and with it the lock, after this process has released both.
func (f keptFile) Map(off, n int64) ([]byte, error) {
	b, err := f.File.Map(off, n)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		f.File.Unmap(b)
		return nil, err
	}
	return b, nil
}

func (f keptFile) Unmap(b []byte) error {
	if f.kept.Load() {
		return nil
	}
	return f.File.Unmap(b)
}

// Window needs no exclusion: forked children do not have it.
func (f keptFile) Window(off, n int64) (vfs.Window, error) { return vfs.OpenWindow(f.File, off, n) }

func (keptFile) Lock(bool) error { return nil }
func (keptFile) Unlock() error   { return nil }
func (keptFile) Close() error    { return nil }
