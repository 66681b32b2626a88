package logstore

import (
	"time"

	"flashdbm/internal/event"
)

// Sync makes every group written before the call durable. One call serves all who wait: if another's sync has covered the caller's
// groups meanwhile, nothing is done. An error has poisoned the store: the system may have dropped the pages, and a second fdatasync
// would report success.
func (s *Store) Sync() error {
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
func (s *Store) datasync() error {
	s.syncs.Add(1)
	private, appended := s.private.written.Load(), s.appended.Load()
	s.last.close()
	if err := s.Failed(); err != nil { // a write of that page, which may have spoilt what it held
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
func (s *Store) UnsyncedPages() int64 {
	at := s.syncedAt.Load() // first: appended never falls
	return int64(s.appended.Load() - at)
}
