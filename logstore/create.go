package logstore

import (
	"fmt"
	"io"
	"math"

	"flashdbm/logstore/vfs"
)

// create lays out a new file: segment 0, which takes 128 KiB at first. The superblocks come with the caller's two checkpoints.
func (s *Store) create() (*Recovery, error) {
	n := s.opts.SegmentPages
	if n == 0 {
		n = segmentPagesFor(s.capacity())
	}
	if n < MinSegmentPages || n > MaxSegmentPages || n&(n-1) != 0 {
		return nil, fmt.Errorf("flashdbm: segment size of %d pages: a power of two from %d to %d is wanted", n, MinSegmentPages, MaxSegmentPages)
	}
	s.setSegmentPages(n)
	s.uuid = randomUUID()
	s.features.wanted.Or(featureEven | featureLogged)
	if s.opts.Growing {
		s.features.wanted.Or(featureGrowing)
	}
	s.space = newSpace(n, s.opts.MaxFileSize)
	h := header{successor: 1, salt: randomSalt(), sequence: 1, group: firstGroup, uuid: s.uuid}
	s.tail = tail{header: h, page: headerPage(0) + 1, fresh: headerPage(0) + 1, group: firstGroup}
	s.space.enter(h)
	s.space.extendTo(2)
	s.space.setTail(&s.tail)
	if s.opts.ReadOnly { // an empty file, opened read-only, is an empty database that is never written
		return &Recovery{Created: true}, nil
	}
	err := s.file.Truncate(0) // a creation cut short by a failed sync may have left a size that no later sync writes
	if err == nil {
		err = s.file.Allocate(0, initialPages*PageSize)
	}
	if isNoSpace(err) {
		return nil, &fullError{path: s.path, cause: err}
	}
	if err == nil {
		page := make([]byte, PageSize)
		h.put(page)
		_, err = s.file.WriteAt(page, int64(headerPage(0))*PageSize)
	}
	if err == nil {
		err = s.file.Datasync()
	}
	rec := &Recovery{Created: true}
	if err == nil {
		if err = s.fs.SyncDir(s.path); vfs.IsUnsyncable(err) {
			rec.Unsyncable, err = err, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("flashdbm: create %s: %w", s.path, err)
	}
	s.space.grown(initialPages)
	return rec, s.mapTo(initialPages)
}

// capacity returns the bytes that a new file may grow to: MaxFileSize, or what the device has left.
func (s *Store) capacity() int64 {
	bytes := int64(math.MaxInt64)
	if s.opts.MaxFileSize > 0 {
		bytes = s.opts.MaxFileSize
	}
	if free, err := s.file.Free(); err == nil {
		bytes = min(bytes, free)
	}
	return bytes
}

// segmentPagesFor chooses the segment size of a new file that may grow to so many bytes, N pages. A segment of n pages gives one of them to
// its header, and a full file has about segmentsIdle segments from which nothing can be had: the tail, its successor, and the one that is
// held back. Of each page 1/n + segmentsIdle*n/N is lost so, least where n*n is N/segmentsIdle. The default is the largest one.
func segmentPagesFor(bytes int64) uint32 {
	n := uint32(MinSegmentPages)
	for n < DefaultSegmentPages && int64(2*n)*int64(2*n)*segmentsIdle <= bytes/PageSize {
		n *= 2
	}
	return n
}

const segmentsIdle = 3

// checkCreation tells a file whose creation was cut short, which is created again, from one that has lost its superblocks or is no
// database. size is in bytes; both superblocks are blank.
//
// The first superblock is durable before the second checkpoint is begun: so if the log, as far as it lies in segment 0, holds pages of
// two checkpoints, or has come back to segment 0, there has been one. The file is as large as it was made, or by a page larger, if the power
// was cut while one was opened whose superblock only the system had: see reallocate. No whole segments end there.
func (s *Store) checkCreation(size int64) error {
	page := make([]byte, PageSize)
	at := Addr(headerPage(0))
	read := func() error {
		clear(page)
		_, err := s.file.ReadAt(page, int64(at)*PageSize)
		if err != nil && err != io.EOF {
			return fmt.Errorf("flashdbm: read %s: %w", s.path, err)
		}
		return nil
	}
	if err := read(); err != nil {
		return err
	}
	h, ok := getHeaderCopy(page)
	switch {
	case ok && h.segment == 0 && h.sequence == 1:
	case ok:
		return fmt.Errorf("%w: %s: both superblocks are lost", ErrCorrupt, s.path)
	case size <= (initialPages+1)*PageSize:
		return nil
	default:
		return fmt.Errorf("%w: %s is not a flashdbm database", ErrFormat, s.path)
	}
	checkpoints := map[uint64]bool{}
	for at++; ; at++ {
		if err := read(); err != nil {
			return err
		}
		m := getMux(page)
		if m.crc != pageCRC(h.salt, at, page) {
			return nil
		}
		if m.groupKind() == CheckpointGroup && m.last() {
			checkpoints[m.count] = true
		}
		if len(checkpoints) > 1 {
			return fmt.Errorf("%w: %s: both superblocks are lost", ErrCorrupt, s.path)
		}
	}
}
