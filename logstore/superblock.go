package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"flashdbm/logstore/space"
)

const (
	Version        = 1 // version of the file format
	superblockSize = 512
	superblockCRC  = superblockSize - 4
)

var superblockMagic = [8]byte{'F', 'L', 'A', 'S', 'H', 'D', 'B', 'M'}

// Segment sizes in pages. Each is a power of two, so that no segment straddles two mappings.
const (
	MinSegmentPages     = 8
	DefaultSegmentPages = 256
	MaxSegmentPages     = 1 << 16
)

// superblock is the root of the file. It fits one 512-byte sector, so a power cut leaves the old one or the new one.
// Pages 0 and 1 hold one each; checkpoint n is in page n%2.
type superblock struct {
	segmentPages uint32
	compatible   uint64 // feature flags that an older program may ignore
	incompatible uint64 // feature flags that an older program must refuse
	uuid         [16]byte
	number       uint64   // of the checkpoint
	run          Position // where the checkpoint's first group starts
	runLast      uint64   // number of the checkpoint's last group
	runFirst     uint64   // number of the checkpoint's first group
	start        Position // where the scan starts
	lineage      uint64   // random, drawn again by each recovery; 0 before the first
}

func (s *superblock) put(p []byte) {
	le := binary.LittleEndian
	clear(p[:PageSize])
	copy(p, superblockMagic[:])
	le.PutUint32(p[8:], Version)
	le.PutUint32(p[12:], s.segmentPages)
	le.PutUint64(p[16:], s.compatible)
	le.PutUint64(p[24:], s.incompatible)
	copy(p[32:48], s.uuid[:])
	le.PutUint64(p[48:], s.number)
	s.run.put(p[56:])
	s.start.put(p[80:])
	le.PutUint64(p[104:], s.runFirst)
	le.PutUint64(p[112:], s.runLast)
	le.PutUint64(p[120:], s.lineage)
	le.PutUint32(p[superblockCRC:], crc32.Checksum(p[:superblockCRC], castagnoli))
}

// inSpace returns what the space map needs of the superblock. run is the set of segments with pages of its
// checkpoint.
func (s *superblock) inSpace(run map[uint32]bool) space.Checkpoint {
	return space.Checkpoint{Number: s.number, Start: s.start.Group, Run: run}
}

// HasMagic reports whether b, the beginning of a file, has the magic of a database.
func HasMagic(b []byte) bool { return len(b) >= PageSize && [8]byte(b[:8]) == superblockMagic }

var errNoSuperblock = errors.New("not a superblock")

// getSuperblock decodes a superblock. It returns errNoSuperblock if the magic is missing, ErrFormat if a newer
// program wrote it, ErrCorrupt if it is damaged.
func getSuperblock(p []byte) (superblock, error) {
	le := binary.LittleEndian
	var s superblock
	if len(p) < superblockSize || [8]byte(p[:8]) != superblockMagic {
		return s, errNoSuperblock
	}
	if le.Uint32(p[superblockCRC:]) != crc32.Checksum(p[:superblockCRC], castagnoli) {
		return s, fmt.Errorf("%w: superblock checksum", ErrCorrupt)
	}
	if v := le.Uint32(p[8:]); v != Version {
		return s, fmt.Errorf("%w: format version %d, this program reads version %d: use a newer flashdbm", ErrFormat, v, Version)
	}
	s.segmentPages = le.Uint32(p[12:])
	s.compatible, s.incompatible = le.Uint64(p[16:]), le.Uint64(p[24:])
	s.uuid = [16]byte(p[32:48])
	s.number = le.Uint64(p[48:])
	s.run, s.start = getPosition(p[56:]), getPosition(p[80:])
	s.runFirst, s.runLast, s.lineage = le.Uint64(p[104:]), le.Uint64(p[112:]), le.Uint64(p[120:])
	switch n := s.segmentPages; {
	case s.incompatible&^knownFeatures != 0:
		return s, fmt.Errorf("%w: features %#x are unknown to this program: use a newer flashdbm", ErrFormat, s.incompatible&^knownFeatures)
	case n < MinSegmentPages || n > MaxSegmentPages || n&(n-1) != 0:
		return s, fmt.Errorf("%w: segment size of %d pages", ErrCorrupt, n)
	case s.run.Page < 1 || s.run.Page > n || s.start.Page < 1 || s.start.Page > n || s.runFirst > s.runLast:
		return s, fmt.Errorf("%w: superblock positions", ErrCorrupt)
	}
	return s, nil
}

// readSuperblocks decodes both superblocks and returns the newer valid one, nil for a file whose creation was
// not completed.
func (s *Store) readSuperblocks(size int64) (*superblock, error) {
	if size == 0 {
		return nil, nil
	}
	var newest *superblock
	var worst error
	blank := true
	for slot := range s.supers {
		page := make([]byte, superblockSize)
		if _, err := s.read(page, Addr(slot)); err != nil {
			return nil, err
		}
		blank = blank && isZero(page)
		sb, err := getSuperblock(page)
		if err == nil && sb.number%2 != uint64(slot) {
			err = fmt.Errorf("%w: misplaced superblock", ErrCorrupt)
		}
		if errors.Is(err, ErrFormat) {
			return nil, fmt.Errorf("%s: %w", s.path, err)
		}
		if err != nil {
			if worst == nil || errors.Is(worst, errNoSuperblock) {
				worst = err
			}
			continue
		}
		s.supers[slot] = &sb
		if newest == nil || sb.number > newest.number {
			newest = &sb
		}
	}
	switch {
	case newest != nil:
		o := s.supers[1-newest.number%2]
		if o != nil && (o.uuid != newest.uuid || o.segmentPages != newest.segmentPages) {
			return nil, fmt.Errorf("%w: %s: superblocks of two databases", ErrCorrupt, s.path)
		}
		return newest, nil
	case blank:
		return nil, s.checkCreation(size)
	case errors.Is(worst, errNoSuperblock):
		return nil, fmt.Errorf("%w: %s is not a flashdbm database", ErrFormat, s.path)
	}
	return nil, fmt.Errorf("%s: both superblocks: %w", s.path, worst)
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
