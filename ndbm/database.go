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

// A database is an open .pag file. Calls of any thread may use it at once.
//
// Two processes may have it open for writing and take turns. So the lock is not held for as long as the database is open, but from a call
// that finds it free until another process asks for it, or nobody has called for a while; then the engine is closed, and the next call
// opens it again.
//
//	shut --- a call gets the lock, opens the engine ---> running
//	running --- watch: asked, or idle; waits for the calls under way, closes the engine, unlocks ---> shut
//
// Between the two no call is under way: mu is held for reading by every call, for writing by what changes the state.
//
// A database that is only read asks nobody. If no process is writing it has a lock that readers share, which it lets go when one wants to write; beside
// one that is, it follows what that writes:
//
//	shut --- no lock to be had ---> following --- watch: the lock is free ---> running
//
// Following costs a look at the file with each call, and every page is copied and checked, so it gives way to the lock.
type database struct {
	lock    fileLock
	file    vfs.File // kept while shut
	options mvcc.Options
	idle    time.Duration // without a call, after which the lock is let go unasked

	mu     sync.RWMutex
	owned  atomic.Bool      // mu is held for writing; set and cleared by who holds it
	engine *mvcc.Engine     // nil unless running; guarded by mu
	beside *beside.Follower // nil unless following; guarded by mu
	quit   chan struct{}    // of the watch, nil while shut; guarded by mu
	gave   time.Time        // when the lock was let go because another process had asked for it; guarded by mu
	closed bool             // guarded by mu

	calls  atomic.Uint64 // tells the watch that the database is in use
	wanted atomic.Int32  // who tries to own the database: calls that begin let them
	keys   keys          // of the file that the engine has; guarded by mu
	shown  shown         // what the front library reads by itself; guarded by mu
	kept   *atomic.Bool  // the engine's mapping is not to be undone, as somebody may read it for ever; guarded by mu
}

const (
	askedEvery = 4 * time.Millisecond   // how often a holder looks whether it is asked for the lock
	idleAfter  = time.Second            // see database.idle
	unlockedIn = 100 * time.Millisecond // how often a follower looks whether the lock is free
	leftAfter  = 5 * time.Second        // a call under way when the database is closed is taken for one that never ends
	tryEvery   = 100 * time.Microsecond // how often who tries to own the database looks again,
	letOwn     = 20                     // and for 20 looks a call that begins stays out of the way
	letOthers  = 3 * time.Millisecond   // how long who was asked for the lock leaves it alone; the others look for it every millisecond
)

// settings are what open is told.
type settings struct {
	readOnly bool
	posix    bool // the descriptor is shared with another process: a lock of this process alone is needed
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
	mostMemory  = 256 << 20 // as much as Go programs have by default
	leastMemory = 64 << 20
)

// memoryLimit is a sixteenth of the machine's memory. The more, the more stores wait to be merged into the tree at a time, and the less
// often a page is written.
func memoryLimit() int64 {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return leastMemory
	}
	return min(max(int64(s.Totalram)*int64(s.Unit)/16, leastMemory), mostMemory)
}

// enter begins a call: the state stays until leave. errBusy: another process holds the lock and has been asked for it; call again in a
// millisecond.
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

// read calls fn, within a call, with an engine that shows what is in the file now, and what its keys are; again if a writer was too fast for it.
func (d *database) read(fn func(*mvcc.Engine, keys) error) error {
	if d.engine != nil {
		return fn(d.engine, d.keys)
	}
	return d.beside.Use(func(e *mvcc.Engine) error {
		k, err := keysOf(e) // each time: the process that writes may have made it a file with keyspaces
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

// tryOwn is own for who must not wait for ever. errLeft: there is a call that does not end. A handler of the program's has left it by
// longjmp, and mu is held for reading for ever. A lock that was waited for would keep all others out meanwhile; so it is tried, and calls
// that begin wait a little, lest those that overlap never let it go.
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
		if d.owned.Load() { // opening or closing the engine, which ends
			since = time.Now()
		} else if time.Since(since) > leftAfter {
			return errLeft
		}
		time.Sleep(tryEvery)
	}
	return nil
}

// start opens the engine if it is not.
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

// tryShared takes the lock of readers, if no process writes, or wants to. mu is held for writing.
func (d *database) tryShared() error {
	if time.Since(d.gave) < letOthers || d.lock.asked() {
		return errBusy
	}
	return d.lock.try()
}

// follow opens the database beside the process that writes it. mu is held for writing.
func (d *database) follow() error {
	f, err := beside.Open(oneFile{file: d.file}, d.file.Name(), d.options)
	if err != nil {
		return err
	}
	d.beside, d.quit = f, make(chan struct{})
	go d.watchLock(d.quit)
	return nil
}

// watchLock ends the following when the lock is free.
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

// acquire takes the lock, or asks for it. mu is held for writing.
func (d *database) acquire() error {
	if time.Since(d.gave) < letOthers {
		return errBusy
	}
	return d.lock.acquire()
}

// run opens the engine. mu is held for writing, and the lock is ours.
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

// shut closes the engine and lets the lock go. mu is held for writing.
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

// show shows the front library the tree, if there it would find the keys of ndbm, and no others. mu is held for writing, and the engine runs.
func (d *database) show() {
	if !d.keys.shifted {
		d.shown.show(d.engine)
	}
}

func (d *database) shownLate() bool { return !d.keys.shifted && d.shown.due(d.engine) }

// used counts the calls so far, and shows the tree if that can be done only now, as there was much to redo. ok is false if the database was
// shut meanwhile: the memory of the front library's may be gone.
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

// watch lets the lock go when another process asks for it, or nobody calls for a while.
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
		if asked { // nobody comes in meanwhile
			d.own()
		} else if d.tryOwn() != nil {
			continue
		}
		if d.quit == quit { // not shut meanwhile, nor opened again
			d.shut() // what it cannot write now is in the log, and the next one to open the file finds it there
			if asked {
				d.gave = time.Now()
			}
		}
		d.disown()
		return
	}
}

// truncate removes every record, and everything else from the file.
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
	if d.engine == nil || d.options.Store.ReadOnly { // it was synced when the lock was let go
		return nil
	}
	return d.engine.Sync()
}

// letGo syncs, and lets the lock go until the next call.
func (d *database) letGo() error {
	if err := d.tryOwn(); err != nil {
		return err
	}
	defer d.disown()
	return d.shut()
}

// cancel takes back that the lock was asked for.
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

// oneFile is a file system with one file, which is open already and stays so.
type oneFile struct {
	file vfs.File
	kept *atomic.Bool
}

func (f oneFile) Open(string, int, fs.FileMode) (vfs.File, error) {
	return keptFile{f.file, f.kept}, nil
}
func (oneFile) Remove(string) error  { return errors.ErrUnsupported }
func (oneFile) SyncDir(string) error { return nil } // the front library has done it

// keptFile leaves closing and locking to the database.
type keptFile struct {
	vfs.File
	kept *atomic.Bool // see database; nil: nothing is mapped
}

// Map leaves the mapping out of forked children: there it would keep the file's description open, and with it the lock, when this process
// has let go of both.
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

// Window is passed on: forked children do not have it.
func (f keptFile) Window(off, n int64) (vfs.Window, error) { return vfs.OpenWindow(f.File, off, n) }

func (keptFile) Lock(bool) error { return nil }
func (keptFile) Unlock() error   { return nil }
func (keptFile) Close() error    { return nil }
