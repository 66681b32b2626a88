package logstore

import (
	"errors"
	"fmt"
)

const (
	initialPages   = 32 // of a new file: 128 KiB
	maxGrowthPages = 64 << 20 / PageSize
)

// Reserve promises pages for later appends, growing the file where free segments do not suffice. ErrFull if they cannot be had; it
// unwraps to the system's error if that said so. With emergency the pages that are held back for checkpoints and flushes may be used.
// Each Reserve is taken back by Release as the pages are appended or given up.
func (s *Store) Reserve(pages int64, emergency bool) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	if s.space.reserve(pages, emergency) <= 0 {
		return nil
	}
	s.growing.Lock()
	defer s.growing.Unlock()
	for {
		missing := s.space.reserve(pages, emergency)
		if missing <= 0 {
			return nil
		}
		if err := s.grow(uint64(missing), s.opts.Synced && pages <= smallReserve); err != nil {
			return err
		}
	}
}

// Release takes back what Reserve promised.
func (s *Store) Release(pages int64) {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	if s.space.reserved -= pages; s.space.reserved < 0 {
		panic("logstore: more pages released than reserved")
	}
}

// grow makes more of the file usable: condemned segments first, then punched ones, and at last the file gets longer. What is allocated is
// synced before anything refers to it. With young, a file's first segments are written with zeros too: see zero.go. The caller holds
// growing.
func (s *Store) grow(missing uint64, young bool) error {
	if err := s.Failed(); err != nil {
		return err
	}
	if s.space.spare(int64(missing)) {
		return nil
	}
	size, limit := uint64(s.segmentPages), s.space.maxPages
	from := s.space.end()
	roundUp := func(n uint64) uint64 { return (n + size - 1) / size * size }
	want := min(roundUp(max(missing, from/8)), maxGrowthPages/size*size+size)
	if first, n := s.space.hole(uint32(want / size)); n > 0 {
		most, err := s.allocate(uint64(first)*size, uint64(n)*size, size, false)
		if err == nil {
			s.space.filled(first, uint32(most/size))
		}
		return err
	}
	least := roundUp(from+1) - from
	if from+least > limit || missing > limit-from {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	young = young && from < size
	got, err := s.allocate(from, min(roundUp(from+want), limit/size*size)-from, least, young)
	if err != nil {
		return err
	}
	if young {
		s.zeroDue.Store(true)
	}
	if err := s.mapTo(from + got); err != nil {
		return s.fail(err)
	}
	s.space.grown(from + got)
	return nil
}

// allocate reserves space for the pages from the given one on, or for the least number where there is no more, and syncs. It returns how
// many there are. With zero it writes them too.
func (s *Store) allocate(from, pages, least uint64, zero bool) (uint64, error) {
	if err := s.shorter(); err != nil {
		return 0, s.fail(err)
	}
	err := s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	if isNoSpace(err) && pages > least {
		pages = least
		err = s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	}
	for a := from; zero && err == nil && a < from+pages; a += partPages {
		_, err = s.file.WriteAt(make([]byte, min(partPages, from+pages-a)*PageSize), int64(a)*PageSize)
	}
	if isNoSpace(err) {
		return 0, &fullError{path: s.path, cause: err}
	}
	if err != nil {
		return 0, s.fail(err)
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	return pages, s.datasync()
}

// fullError is ErrFull with the system's reason.
type fullError struct {
	path  string
	cause error
}

func (e *fullError) Error() string   { return ErrFull.Error() + ": " + e.path + ": " + e.cause.Error() }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// IsFull reports whether an error means that space is short.
func IsFull(err error) bool { return errors.Is(err, ErrFull) }
