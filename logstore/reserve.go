package logstore

import (
	"errors"
	"fmt"
	"sync/atomic"

	"flashdbm/logstore/space"
)

const (
	initialPages   = 32 // of a new file: 128 KiB
	maxGrowthPages = 64 << 20 / PageSize
	midGrowthPages = 8 << 20 / PageSize
)

// growth makes the file longer where reservations need that, and gives space back to the file system.
type growth struct {
	*disk
	*mapping
	*syncer
	zeroDue    atomic.Bool   // a small group has entered a segment: see ZeroAhead
	returned   atomic.Uint64 // pages given back to the file system
	deviceFree atomic.Int64  // bytes that the file system had free when it was asked last
}

// Reserve promises pages for later appends and grows the file where free segments do not suffice. It returns
// ErrFull, which unwraps to the system's error if there was one, if the pages cannot be had. With emergency the
// held-back pages may be used. The caller undoes each Reserve by Release as the pages are appended or given up.
func (s *growth) Reserve(pages int64, emergency bool) error {
	if emergency {
		return s.reserve(pages, 0, space.ForEmergency)
	}
	return s.reserve(pages, 0, ForWrites)
}

// ReserveFor is Reserve with a claim, provided that more further pages remain available.
func (s *growth) ReserveFor(c Claim, pages, more int64) error { return s.reserve(pages, more, c) }

// ReserveBeside is Reserve for background work that will need more further pages later.
func (s *growth) ReserveBeside(pages, more int64) error {
	return s.reserve(pages, more, space.ForEmergency)
}

// ErrBound means that a reservation would have the file pass its bound.
var ErrBound = errors.New("flashdbm: the file would pass its bound")

// ReserveWithin is ReserveFor unless the used part of the file would pass its bound by more than over pages: then
// it returns ErrBound, and has reserved nothing.
func (s *growth) ReserveWithin(c Claim, pages, over int64) error {
	if missing, passes := s.space.ReserveWithin(c, pages, over); passes {
		return ErrBound
	} else if missing <= 0 {
		return nil
	}
	return s.reserve(pages, 0, c)
}

func (s *growth) reserve(pages, beside int64, c Claim) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	if s.space.Reserve(pages, beside, c) <= 0 {
		return nil
	}
	return s.growUntil(func() int64 { return s.space.Reserve(pages, beside, c) })
}

// growUntil grows the file until nothing is missing any more.
func (s *growth) growUntil(missing func() int64) error {
	s.growing.Lock()
	defer s.growing.Unlock()
	for {
		n := missing()
		if n <= 0 {
			return nil
		}
		if err := s.grow(uint64(n)); err != nil {
			return err
		}
	}
}

// Fits reports whether the pages could be had besides those promised and those that deletes must leave. It reserves
// nothing.
func (s *growth) Fits(pages int64) bool {
	lack, grows := s.space.Lack(pages)
	return lack <= 0 || grows && lack <= s.DeviceFree()/PageSize
}

// PutRoom returns the number of pages that may still be reserved for puts, all at once: those of the file as it is
// and those that it may grow by, as its limit and what the device had left when it was asked last say.
func (s *growth) PutRoom() int64 {
	room, grow, limited := s.space.PutRoom()
	if device := s.DeviceFree() / PageSize; !limited || device > 0 {
		grow = min(grow, device)
	}
	return max(room+grow, 0)
}

// NoteDevice asks the file system how much room it has left. Growth asks by itself; this is for what others take meanwhile.
func (s *growth) NoteDevice() {
	n, err := s.file.Free()
	if err != nil { // not known: no room is to be relied on
		n = 0
	}
	s.deviceFree.Store(n)
}

// DeviceFree returns how many bytes the file system had left when it was asked last.
func (s *growth) DeviceFree() int64 { return s.deviceFree.Load() }

// grow makes more of the file usable: condemned segments first, then punched ones, and at last a longer file. Newly
// allocated space is synced before anything refers to it. The caller holds growing.
func (s *growth) grow(missing uint64) error {
	if err := s.Failed(); err != nil {
		return err
	}
	if missing == space.Beyond {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	if s.space.Spare(int64(missing)) {
		return nil
	}
	size, limit := uint64(s.segmentPages), s.space.MaxPages()
	from := s.space.End()
	roundUp := func(n uint64) uint64 { return (n + size - 1) / size * size }
	have := s.space.Have()
	want := min(roundUp(s.space.Clip(have, missing, max(missing, have/32, min(have/8, midGrowthPages)))), maxGrowthPages/size*size+size)
	if first, n := s.space.Hole(uint32(want / size)); n > 0 {
		most, err := s.allocate(uint64(first)*size, uint64(n)*size, size)
		if err == nil {
			s.space.Filled(first, uint32(most/size))
			return nil
		}
		if IsFull(err) {
			if found, rerr := s.recall(); found || rerr != nil {
				return rerr
			}
		}
		return err
	}
	least := roundUp(from+1) - from
	if from+least > limit || missing > limit-from {
		return fmt.Errorf("%w: %s would exceed MaxFileSize", ErrFull, s.path)
	}
	got, err := s.allocate(from, min(roundUp(from+want), limit/size*size)-from, least)
	if err != nil {
		return err
	}
	if err := s.mapTo(from + got); err != nil {
		return s.fail(err)
	}
	s.space.Grown(from + got)
	return nil
}

// allocate reserves space for the pages from the given one on, and syncs it. If the device lacks room it settles
// for fewer pages, but not less than the given least number. It returns the number of pages allocated.
func (s *growth) allocate(from, pages, least uint64) (uint64, error) {
	if err := s.shorter(); err != nil {
		return 0, s.fail(err)
	}
	err := s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	if isNoSpace(err) && pages > least {
		pages = least
		err = s.file.Allocate(int64(from)*PageSize, int64(pages)*PageSize)
	}
	s.space.SetShort(isNoSpace(err))
	s.NoteDevice()
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

// fullError is ErrFull with the reason that the system gave.
type fullError struct {
	path  string
	cause error
}

func (e *fullError) Error() string   { return ErrFull.Error() + ": " + e.path + ": " + e.cause.Error() }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.cause} }

// IsFull reports whether an error means that the file or the device lacks space.
func IsFull(err error) bool { return errors.Is(err, ErrFull) }
