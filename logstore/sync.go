package logstore

import (
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
)

// syncer syncs the file and knows which groups are durable.
type syncer struct {
	*disk
	*mapping
	syncing     sync.Mutex    // held during each fdatasync, because one of two at once could miss the other's error; taken before the mutex of the space map
	lastWritten atomic.Uint64 // newest group written to the system
	durable     atomic.Uint64 // newest group known to survive a power cut
	unsynced    unsynced
	private     privateSyncs
	last        lastPage
	appended    atomic.Uint64 // pages appended since Open, raw pages included
	syncedAt    atomic.Uint64 // value of appended before the last successful sync began; written under syncing
	syncs       atomic.Uint64
	syncTime    atomic.Int64 // nanoseconds of the syncs that have ended
}

// LastGroup returns the number of the newest group written. See also Durable.
func (s *syncer) LastGroup() uint64 { return s.lastWritten.Load() }

// Durable returns the number of the newest group known to survive a power cut.
func (s *syncer) Durable() uint64 { return s.durable.Load() }

// Sync makes every group written before the call durable. One sync serves all waiting callers: if the sync of
// another caller has covered this caller's groups meanwhile, Sync does nothing. An error has poisoned the
// store: the system may have dropped the pages, and a second fdatasync would report success.
func (s *syncer) Sync() error {
	upto := s.lastWritten.Load()
	if s.durable.Load() >= upto {
		return s.Failed()
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.Failed(); err != nil {
		return err
	}
	if s.durable.Load() >= upto {
		return nil
	}
	upto = s.lastWritten.Load()
	if err := s.datasync(); err != nil {
		return err
	}
	s.durable.Store(upto)
	s.unsynced.synced(upto)
	return nil
}

// datasync syncs the file. The caller holds syncing.
func (s *syncer) datasync() error {
	s.syncs.Add(1)
	private, appended := s.private.written.Load(), s.appended.Load()
	s.last.close()
	if err := s.Failed(); err != nil { // a failed write of the last page, which may have damaged its content
		return err
	}
	begin := time.Now()
	err := s.file.Datasync()
	took := time.Since(begin)
	s.syncTime.Add(int64(took))
	if took >= event.SlowSyncTime {
		s.events.Post(event.Event{Kind: event.SlowSync, Took: took})
	}
	if err != nil {
		return s.fail(err)
	}
	s.private.synced.Store(private) // syncing is held: they never go back
	s.syncedAt.Store(appended)
	return nil
}

// UnsyncedPages returns how many pages were appended since the last sync began.
func (s *syncer) UnsyncedPages() int64 {
	at := s.syncedAt.Load() // first: appended never falls
	return int64(s.appended.Load() - at)
}
