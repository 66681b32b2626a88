package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of one transaction. Larger: a sync waits longer for the transaction under way. Smaller: the fixed cost of a
// transaction has more weight.
const (
	maxEntries = 1024
	maxBytes   = 4 << 20
	// pieceBytes is about the most bytes that the loader reads in one view of the file. The engine ends longer views
	// when much is written.
	pieceBytes = 1 << 20
	// roomEvery is the interval at which the committer asks the file for its room. retryFull is the pause before it
	// retries in a full file.
	roomEvery = 100 * time.Millisecond
	retryFull = 50 * time.Millisecond
	// commitPause is the least time between two transactions of fewer than maxEntries, if no client waits for the
	// file. Larger: more entries are lost if the process ends. Smaller: a transaction has fewer entries; without a
	// pause it has one entry when 50 clients SET one key at a time, and a SET takes 44 µs of processor time instead
	// of 28.
	commitPause = 10 * time.Millisecond
	// syncedEntries is the number of queued entries at which the committer applies them during a sync, if clients
	// wait for the file; the syncer applies fewer. Smaller: 50 clients that wait for one write each cause several
	// transactions per sync. Larger: less of the work overlaps the sync.
	syncedEntries = 64
	// pageBytes is the most that an entry takes besides its own bytes: a page that it does not share.
	pageBytes = 4096
)

// A Piece is the answer to Load.
type Piece struct {
	ID      uint64 // as in the call
	First   uint64
	Last    uint64 // the last hash that the piece covers
	Since   uint64 // the newest entry in the file before the piece was read: the piece includes all entries up to it
	Applied uint64 // the newest entry in the file after the piece was read: the piece includes no later entry
	Hashes  []uint64
	Records []Record
}

type load struct{ id, first, last, bytes uint64 }

// A Store is a File, and the queue of entries that are to be written to it. Only the shard's thread calls Append,
// Fetch, ForgetFetches, Load, Unload, Fetches and Pieces. Any thread may call the other methods.
type Store struct {
	file   File
	state  State         // record 0 as Open found it, with the term and base of this life
	wake   func()        // tells the shard's thread that there is a new answer or a newly durable entry
	enough int           // the number of queued entries that wakes the committer
	pause  time.Duration // least time between two syncs; if it is not 0, the committer pauses between transactions, too

	appended, applied, durable atomic.Uint64
	round                      round
	full                       atomic.Bool   // the last transaction did not fit
	room                       atomic.Int64  // bytes, when the file was last asked
	base                       atomic.Uint64 // the base that record 0 gets, if it is above the base of record 0
	backlog                    atomic.Int64  // bytes that the entries not yet applied may take in the file

	mu      sync.Mutex // guards the fields below; held only briefly
	queue   []Entry    // not taken by the committer or the syncer yet
	fetches []Fetched
	fetched []Fetched
	age     uint64 // counts calls of ForgetFetches: answers to older fetches are dropped
	loads   []load
	pieces  []Piece
	brought atomic.Bool // fetched or pieces is not empty; changed with mu held, read without it

	failure atomic.Pointer[error]

	applying sync.Mutex // held by the thread that applies a transaction, the committer or the syncer; taken before mu. It guards:
	batch    []Entry    // taken from the queue, not committed
	next     State      // record 0 as of the last transaction
	lastRoom time.Time

	nextCommit time.Time // for the committer
	looking    []Fetched // for the fetcher: taken from fetches, not looked up yet
	found      *Fetched  // for the fetcher: looked up, not passed to the shard yet
	piece      *Piece    // for the loader: read, not passed to the shard yet
	nextSync   time.Time // for the syncer
	syncBegan  time.Time // for the syncer
	synced     uint64    // for the syncer: the newest entry of a sync that has ended and was not published yet; 0 if there is none

	stop      chan struct{}    // closed by Close
	changed   [4]chan struct{} // one for each thread: there is work
	done      sync.WaitGroup
	closeOnce sync.Once
}

// The threads, as indexes.
const (
	committer = iota
	syncer
	fetcher
	loader
)

// Open begins a new life of a shard on the file. The threads of the store call wake when there is something new
// for the shard; wake must not block. pause is the least time between two syncs: 0 if clients wait for them.
func Open(f File, wake func(), pause time.Duration) (*Store, error) {
	s := &Store{file: f, wake: wake, pause: pause, enough: maxEntries, stop: make(chan struct{})}
	if pause == 0 {
		s.enough = syncedEntries
	}
	var err error
	if s.state, err = f.State(); err != nil {
		return nil, err
	}
	s.state.Term++
	s.state.Base += versionGap
	if err := f.Apply(nil, s.state); err != nil {
		return nil, fmt.Errorf("store: cannot begin term %d: %w", s.state.Term, err)
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("store: cannot begin term %d: %w", s.state.Term, err)
	}
	s.next = s.state
	s.appended.Store(s.state.Seq)
	s.applied.Store(s.state.Seq)
	s.durable.Store(s.state.Seq)
	s.room.Store(f.Room())
	for i := range s.changed {
		s.changed[i] = make(chan struct{}, 1)
	}
	return s, nil
}

// Gather sets how many queued entries wake the committer; the simulator uses a small number. It is called before any
// step.
func (s *Store) Gather(entries int) { s.enough = entries }

// State returns the term and base of this life, and the newest entry that the file had at Open.
func (s *Store) State() State { return s.state }

// Begin makes the entries of an empty file begin after seq: the file will receive a copy of all earlier entries,
// which the reigns have made. Nothing has been appended yet.
func (s *Store) Begin(seq uint64, reigns []Term) {
	s.applying.Lock()
	defer s.applying.Unlock()
	s.next.Seq = seq
	for _, t := range reigns {
		s.next.note(&Entry{Term: t.Term, Seq: t.First})
	}
	s.appended.Store(seq)
	s.applied.Store(seq)
	s.durable.Store(seq)
}

// SetBase raises the base that record 0 gets with the next transaction. It is called before an entry with a version
// of that base is appended.
func (s *Store) SetBase(base uint64) { s.base.Store(max(s.base.Load(), base)) }

// Applied returns the newest entry in the file, synced or not.
func (s *Store) Applied() uint64 { return s.applied.Load() }

// Durable returns the newest entry that survives a power cut.
func (s *Store) Durable() uint64 { return s.durable.Load() }

// Backlog returns the approximate number of bytes of the entries that are not in the
// file yet.
func (s *Store) Backlog() int64 { return s.backlog.Load() }

// Fits reports whether an entry of n bytes may be appended: the last transaction fitted, and the file has room for
// the backlog and this entry.
func (s *Store) Fits(n int) bool {
	return !s.full.Load() && s.room.Load()-s.backlog.Load() >= int64(n)+pageBytes
}

// RoomLeft returns the number of bytes that may be appended, as Fits counts them, at least 1.
func (s *Store) RoomLeft() uint64 { return uint64(max(1, s.room.Load()-s.backlog.Load())) }

// Full reports whether the last transaction did not fit.
func (s *Store) Full() bool { return s.full.Load() }

// Err returns why the store has failed, nil if it has not. After a failure nothing becomes durable.
func (s *Store) Err() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// cost returns an approximate upper bound of the bytes that the entry takes in
// the file.
func cost(e *Entry) int64 {
	n := int64(e.size()) + pageBytes
	if len(e.Changes) > 1 {
		n += int64(len(e.Changes)-1) * pageBytes
	}
	return n
}

// size returns the bytes of the entry's keys and values.
func (e *Entry) size() int {
	n := len(e.Key) + len(e.Value)
	for i := range e.Changes {
		n += len(e.Changes[i].Key) + len(e.Changes[i].Value)
	}
	return n
}

// Append queues the entry, whose number is the next one. Key and value are copied; Changes are kept.
func (s *Store) Append(e Entry) {
	if e.Changes == nil {
		b := make([]byte, 0, len(e.Key)+len(e.Value))
		b = append(append(b, e.Key...), e.Value...)
		e.Key, e.Value = b[:len(e.Key):len(e.Key)], b[len(e.Key):]
	}
	s.backlog.Add(cost(&e))
	s.mu.Lock()
	s.queue = append(s.queue, e)
	n := len(s.queue)
	s.appended.Store(e.Seq) // while mu is held: a thread that takes the entry finds it counted
	s.mu.Unlock()
	if n == s.enough || n == 1 && s.pause > 0 {
		s.kick(committer)
	}
	// If the syncer does not see the new entry, it stored durable before it read appended; then Append sees here
	// that the entry is the first after durable, and wakes the syncer.
	if waiting := e.Seq - s.durable.Load(); s.pause == 0 && (waiting == 1 || waiting == uint64(s.round.expects.Load())) {
		s.kick(syncer)
	}
}

// Load asks for the records with first <= hash <= last, about as many as have the given number of bytes (0:
// pieceBytes); Pieces returns the answer.
func (s *Store) Load(id, first, last uint64, bytes int) {
	s.mu.Lock()
	if bytes <= 0 || bytes > pieceBytes {
		bytes = pieceBytes
	}
	s.loads = append(s.loads, load{id, first, last, uint64(bytes)})
	s.mu.Unlock()
	s.kick(loader)
}

// Unload drops the loads that gone selects and that have not begun.
func (s *Store) Unload(gone func(id uint64) bool) {
	s.mu.Lock()
	s.loads = slices.DeleteFunc(s.loads, func(l load) bool { return gone(l.id) })
	s.mu.Unlock()
}

// Brought reports whether Fetches or Pieces has something to return.
func (s *Store) Brought() bool { return s.brought.Load() }

// Pieces returns the answers to Load since the last call.
func (s *Store) Pieces() []Piece {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pieces
	s.pieces = nil
	s.brought.Store(len(s.fetched) > 0)
	return p
}

func (s *Store) fail(err error) {
	s.failure.CompareAndSwap(nil, &err)
	s.wake()
}

// StepCommitter applies one transaction of queued entries, unless it should wait for more entries: if clients wait
// for the file, the syncer applies the entries of a round.
func (s *Store) StepCommitter(now time.Time) (worked bool, next time.Time) {
	s.applying.Lock()
	defer s.applying.Unlock()
	if waits, until := s.gathers(now); waits {
		return false, until
	}
	worked, next = s.apply(now)
	if worked && s.pause > 0 {
		s.nextCommit = now.Add(commitPause)
		s.kick(syncer)
	}
	return worked, next
}

// apply applies one transaction of queued entries. The caller holds applying.
func (s *Store) apply(now time.Time) (worked bool, next time.Time) {
	if now.Sub(s.lastRoom) >= roomEvery {
		s.lastRoom = now
		s.room.Store(s.file.Room())
	}
	if s.take(); len(s.batch) == 0 || s.Err() != nil {
		return false, time.Time{}
	}
	state := s.next
	state.Seq = s.batch[len(s.batch)-1].Seq
	if base := s.base.Load(); base > state.Base {
		state.Base = base
	}
	for i := range s.batch {
		state.note(&s.batch[i])
	}
	switch err := s.file.Apply(s.batch, state); {
	case errors.Is(err, ErrFull) && !errors.Is(err, ErrFailed):
		s.full.Store(true)
		return false, now.Add(retryFull)
	case err != nil:
		s.fail(err)
		return false, time.Time{}
	}
	s.full.Store(false)
	s.next = state
	var done int64
	for i := range s.batch {
		done += cost(&s.batch[i])
	}
	s.backlog.Add(-done)
	clear(s.batch)
	s.batch = s.batch[:0]
	s.applied.Store(state.Seq)
	return true, now
}

// gathers reports whether the committer waits for more entries, and until when if nothing wakes it.
func (s *Store) gathers(now time.Time) (waits bool, until time.Time) {
	s.mu.Lock()
	n := len(s.queue)
	s.mu.Unlock()
	switch {
	case n == 0 || n >= s.enough || len(s.batch) > 0:
		return false, time.Time{}
	case s.pause == 0:
		return true, time.Time{} // the syncer will apply them
	}
	return now.Before(s.nextCommit), s.nextCommit
}

// take fills the batch from the queue, unless the batch still has entries that were not committed.
func (s *Store) take() {
	if len(s.batch) > 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, bytes := 0, 0
	for n < len(s.queue) && n < maxEntries {
		bytes += s.queue[n].size()
		if n > 0 && bytes > maxBytes {
			break
		}
		n++
	}
	if n == len(s.queue) {
		s.batch, s.queue = s.queue, s.batch // batch has been cleared
		return
	}
	s.batch = append(s.batch, s.queue[:n]...)
	s.queue = s.queue[n:]
}

// StepSyncer runs one sync, or publishes the sync that has ended. If clients wait for the file, it waits for a round
// of entries and applies them first.
func (s *Store) StepSyncer(now time.Time) (worked bool, next time.Time) {
	if n := s.synced; n > 0 {
		s.synced = 0
		underWay := s.appended.Load() - s.durable.Load()
		s.durable.Store(n)
		s.round.begin(underWay, now, now.Sub(s.syncBegan))
		s.wake()
		return true, now
	}
	if s.Err() != nil {
		return false, time.Time{}
	}
	if s.pause == 0 {
		waiting := s.appended.Load() - s.durable.Load()
		if waiting == 0 {
			return false, time.Time{}
		}
		if complete, until := s.round.complete(waiting, now); !complete {
			return false, until
		}
		next = s.applyRound(now)
	}
	n := s.applied.Load()
	if n == s.durable.Load() {
		return false, next
	}
	if now.Before(s.nextSync) {
		return false, s.nextSync
	}
	s.nextSync, s.syncBegan = now.Add(s.pause), now
	if err := s.file.Sync(); err != nil {
		s.fail(err)
		return false, time.Time{}
	}
	s.synced = n
	return true, now
}

// applyRound applies the queued entries, and returns when to retry if the file is full.
func (s *Store) applyRound(now time.Time) (again time.Time) {
	s.applying.Lock()
	defer s.applying.Unlock()
	_, again = s.apply(now)
	return again
}

// StepLoader reads one piece, or passes the piece that it has read to the shard.
func (s *Store) StepLoader(now time.Time) (worked bool, next time.Time) {
	if p := s.piece; p != nil {
		s.piece = nil
		s.mu.Lock()
		s.pieces = append(s.pieces, *p)
		s.brought.Store(true)
		s.mu.Unlock()
		s.wake()
		return true, now
	}
	s.mu.Lock()
	if len(s.loads) == 0 || s.Err() != nil {
		s.mu.Unlock()
		return false, time.Time{}
	}
	l := s.loads[0]
	s.loads = s.loads[1:]
	s.mu.Unlock()
	p := &Piece{ID: l.id, First: l.first, Last: l.last, Since: s.applied.Load()}
	bytes := uint64(0)
	err := s.file.Scan(l.first, l.last, func(hash uint64, r *Record) bool {
		n := len(p.Records)
		if bytes >= l.bytes && hash != p.Hashes[n-1] {
			p.Last = hash - 1
			return false
		}
		b := append(append(make([]byte, 0, len(r.Key)+len(r.Value)), r.Key...), r.Value...)
		c := *r
		c.Key, c.Value = b[:len(r.Key):len(r.Key)], b[len(r.Key):]
		p.Hashes, p.Records = append(p.Hashes, hash), append(p.Records, c)
		bytes += uint64(len(b))
		return true
	})
	if err != nil {
		s.fail(err)
		return false, time.Time{}
	}
	p.Applied = s.applied.Load()
	s.piece = p
	return true, now
}

func (s *Store) kick(thread int) {
	select {
	case s.changed[thread] <- struct{}{}:
	default:
	}
}

// Start runs the step functions in goroutines until Close.
func (s *Store) Start() {
	for i, step := range []func(time.Time) (bool, time.Time){s.StepCommitter, s.StepSyncer, s.StepFetcher, s.StepLoader} {
		s.done.Go(func() { s.drive(i, step) })
	}
}

func (s *Store) drive(thread int, step func(time.Time) (bool, time.Time)) {
	for {
		worked, next := step(time.Now())
		if worked {
			select {
			case <-s.stop:
				return
			default:
				continue
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-s.stop:
			return
		case <-s.changed[thread]:
		case <-timer:
		}
	}
}

// Discard stops the threads and closes the file as it is. Queued entries are lost.
func (s *Store) Discard() (err error) {
	s.closeOnce.Do(func() {
		close(s.stop)
		s.done.Wait()
		err = s.file.Close()
	})
	return err
}

// Close applies and syncs the queued entries, stops the threads and closes the file. The shard does not append during
// or after Close.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.stop)
		s.done.Wait()
		s.enough = 0 // the committer no longer gathers
		for worked := true; worked; {
			worked, _ = s.StepCommitter(time.Now())
		}
		switch {
		case s.Err() != nil:
			err = s.Err()
		case len(s.batch) > 0:
			err = fmt.Errorf("store: %d entries that were acknowledged do not fit: %w", len(s.batch)+len(s.queue), ErrFull)
		default:
			if err = s.file.Sync(); err == nil {
				s.durable.Store(s.applied.Load())
			}
		}
		err = errors.Join(err, s.file.Close())
	})
	return err
}
