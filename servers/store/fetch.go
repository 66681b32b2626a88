package store

import "time"

// fetchAtOnce is the most keys whose records the fetcher makes the device read in parallel. Larger: a key that
// is asked for during these reads waits longer. Smaller: fewer reads of the device run in parallel.
const fetchAtOnce = 64

// A Fetched is the answer to a call of Fetch.
type Fetched struct {
	Hash   uint64
	Record // Key is the key that was asked for; the other fields are valid if Found
	Found  bool
	age    uint64
}

// Fetch asks for a key; Fetches returns the answer. The store keeps key.
func (s *Store) Fetch(hash uint64, key []byte) {
	s.mu.Lock()
	s.fetches = append(s.fetches, Fetched{Hash: hash, Record: Record{Key: key}, age: s.age})
	s.mu.Unlock()
	s.kick(fetcher)
}

// ForgetFetches drops all fetches so far, and their answers.
func (s *Store) ForgetFetches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age++
	s.fetches, s.fetched = nil, nil
	s.brought.Store(len(s.pieces) > 0)
}

// Fetches returns the answers to Fetch since the last call.
func (s *Store) Fetches() []Fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fetched
	s.fetched = nil
	s.brought.Store(len(s.pieces) > 0)
	return f
}

// StepFetcher looks up one key, or passes the key that it has looked up to the shard. Before the first of several keys
// that wait, it makes the device read the records of all of them. Entries appended between the lookup and the moment at
// which the shard takes the answer may make the answer outdated; the shard knows which keys have such entries.
func (s *Store) StepFetcher(now time.Time) (worked bool, next time.Time) {
	if f := s.found; f != nil {
		s.found = nil
		s.mu.Lock()
		if f.age == s.age {
			s.fetched = append(s.fetched, *f)
			s.brought.Store(true)
		}
		s.mu.Unlock()
		s.wake()
		return true, now
	}
	if s.Err() != nil {
		return false, time.Time{}
	}
	if len(s.looking) == 0 {
		s.mu.Lock()
		n := min(len(s.fetches), fetchAtOnce)
		s.looking, s.fetches = s.fetches[:n:n], s.fetches[n:]
		s.mu.Unlock()
		if n == 0 {
			return false, time.Time{}
		}
		if n > 1 {
			if err := s.file.Prefetch(s.looking); err != nil {
				s.fail(err)
				return false, time.Time{}
			}
		}
	}
	f := s.looking[0]
	s.looking = s.looking[1:]
	r, found, err := s.file.Get(f.Hash, f.Key)
	if err != nil {
		s.fail(err)
		return false, time.Time{}
	}
	if f.Found = found; found {
		r.Key = f.Key
		f.Record = r
	}
	s.found = &f
	return true, now
}
