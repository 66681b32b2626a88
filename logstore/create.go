package logstore

import (
	"fmt"
	"math"

	"flashdbm/logstore/space"
	"flashdbm/logstore/vfs"
)

// create lays out a new file: segment 0, which has only 128 KiB at first. The caller's two checkpoints write the
// superblocks.
func (s *Store) create() (*Recovery, error) {
	n := s.opts.SegmentPages
	if n == 0 {
		n = segmentPagesFor(s.capacity())
	}
	if n < MinSegmentPages || n > MaxSegmentPages || n&(n-1) != 0 {
		return nil, fmt.Errorf("flashdbm: segment size of %d pages: it must be a power of two from %d to %d", n, MinSegmentPages, MaxSegmentPages)
	}
	s.setSegmentPages(n)
	s.setChunkPages(s.opts.ChunkPages)
	s.uuid = randomUUID()
	s.features.wanted.Or(featureEven | featureLogged)
	if s.opts.Growing {
		s.features.wanted.Or(featureGrowing)
	}
	s.setSpace(space.New(n, s.opts.MaxFileSize, nil))
	h := header{successor: 1, salt: randomSalt(), sequence: 1, group: firstGroup, uuid: s.uuid}
	s.tail = tail{header: h, page: headerPage(0) + 1, fresh: headerPage(0) + 1, group: firstGroup}
	s.enter(h)
	s.setTail()
	if s.opts.ReadOnly { // an empty file opened read-only is an empty database that is never written
		return &Recovery{Created: true}, nil
	}
	err := s.file.Truncate(0) // an earlier creation whose sync failed may have left a size that the system takes for durable
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
	s.space.Grown(initialPages)
	return rec, s.mapTo(initialPages)
}

// capacity returns the number of bytes that a new file may grow to: MaxFileSize, or what the device has left.
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

// segmentPagesFor chooses the segment size of a new file that may grow to the given bytes, N pages. A segment of n
// pages loses one page to its header, and a full file has about segmentsIdle segments that cannot be used: the
// tail, its successor, and the held-back one. So a share of 1/n + segmentsIdle*n/N of the file is lost, which is
// least where n*n is N/segmentsIdle. The default size is the largest.
func segmentPagesFor(bytes int64) uint32 {
	n := uint32(MinSegmentPages)
	for n < DefaultSegmentPages && int64(2*n)*int64(2*n)*segmentsIdle <= bytes/PageSize {
		n *= 2
	}
	return n
}

const segmentsIdle = 3

// IsCreated reports whether a file of the given number of pages has the length of a file that was created and has not
// grown: see checkCreation.
func IsCreated(pages uint64) bool { return pages == initialPages || pages == initialPages+1 }

// checkCreation tells a file whose creation was interrupted, which is created again, from a file that has lost its
// superblocks or is no database. size is in bytes; both superblocks are blank.
//
// The first superblock is durable before the second checkpoint begins. So if the part of the log in segment 0 holds
// pages of two checkpoints, or has come back to segment 0, there was a superblock. The file of an interrupted
// creation has the size that it was made with, or is one page longer if the power was cut while a file was opened
// whose superblock only the system's cache had: see reallocate. No whole segments end at these sizes.
func (s *Store) checkCreation(size int64) error {
	page := make([]byte, PageSize)
	at := Addr(headerPage(0))
	if _, err := s.read(page, at); err != nil {
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
		if _, err := s.read(page, at); err != nil {
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
