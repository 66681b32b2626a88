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
		if err := s.grow(uint64(missing)); err != nil {
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

// grow allocates more of the file and syncs it, before anything refers to it. The caller holds growing.
func (s *Store) grow(missing uint64) error {
	if err := s.Failed(); err != nil {
		return err
	}
	size, limit := uint64(s.segmentPages), s.space.maxPages
	from := s.space.end()
	roundUp := func(n uint64) uint64 { return (n + size - 1) / size * size }
	least := roundUp(from + 1)
	if least > limit || missing > limit-from {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	want := min(roundUp(from+max(missing, from/8)), roundUp(from+maxGrowthPages), limit/size*size)
	err := s.file.Allocate(int64(from)*PageSize, int64(want-from)*PageSize)
	if isNoSpace(err) && want > least {
		want = least
		err = s.file.Allocate(int64(from)*PageSize, int64(want-from)*PageSize)
	}
	if isNoSpace(err) {
		return &fullError{path: s.path, cause: err}
	}
	if err != nil {
		return s.fail(err)
	}
	s.syncing.Lock()
	err = s.datasync()
	s.syncing.Unlock()
	if err != nil {
		return err
	}
	if err := s.mapTo(want); err != nil {
		return s.fail(err)
	}
	s.space.grown(want)
	return nil
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
