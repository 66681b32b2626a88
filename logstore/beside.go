package logstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"sync/atomic"

	"flashdbm/logstore/vfs"
)

// A store opened with Options.Beside reads a file that another process may be writing. The reader takes no
// lock, and the writer takes no notice of the reader. So the reader trusts nothing in the file before it has
// copied and checked it, and it notices what is gone:
//
//  1. A page counts only as a copy: read, then checked against its checksum, then decoded. The checksum covers
//     the page's address and the salt that the segment had when the log entered it. In one life of a segment a
//     page gets one content, except for rules 5 and 7. So a copy that passes is the page that was meant,
//     whatever the writer does meanwhile. Value runs and extents are checked as a whole.
//  2. The salts come from the checkpoint, from headers that continue the chain, and from the headers of
//     private segments that a group lists. The latter are not used if a checkpoint was begun after that group,
//     because only then can such a header be of a later life (saltListed). The reader records when it learned
//     of a segment's present life: a reader whose snapshot is older must not use pages of that life, which are
//     whole and mean something else (EnteredAt).
//  3. A segment is reused, punched or cut off only after a checkpoint that does not need it is durable. So a
//     copy that fails its check may be gone if a checkpoint was begun after the reader's snapshot; otherwise
//     it is damage (CheckpointedSince). The writer writes in this order: superblock; header of the segment's
//     new life, or zeros over the header; pages, or the hole.
//  4. The log after the last group followed may have been reused too, and then its segments look like the end
//     of the log. But by the rules of reuse the newest checkpoint ends after that group in this case, and the
//     reader starts again (Follow).
//  5. The writer may rewrite the last page of the log with a longer group (lastPage). So the scan keeps the
//     content of that page that it has checked. If the page's checksum now leads to another digest than the
//     scan has, the group was rewritten and is read again (backUp, rewritten). A read during the rewrite may
//     get a mixture of both. The reader must still see every commit in the page that has returned, so it
//     repeats the read (awaitWhole).
//  6. Nothing is mapped: if the file was cut short, a read is short instead of faulting.
//  7. A group that was shown may be lost: its sync failed, and the system dropped its pages. The recovery of
//     the next writer ends before that group, and other groups take its place, with the same numbers and salt.
//     So each recovery draws a new lineage for the superblock before anything is appended, and the reader then
//     starts again (Follow). Its running transactions still use pages of groups that the writer, in the lineage
//     that was loaded, has known to be durable, and no pages of later groups (notReplaced). A superblock with
//     a lower number than one seen before counts as of another lineage, because the newer one is damaged now.
//
// The same reads serve a reader that gets the file's pages by other means than the file system, such as remote
// memory.
type beside struct {
	pages   pageCache
	mu      sync.RWMutex      // guards the next two
	entered map[uint32]uint64 // segment -> stamp when a header of a new life was taken in
	stamp   uint64            // stamp given to headers that are taken in now: see Follow

	// Transactions read these two while another goroutine follows the log and raises them.
	newest atomic.Uint64 // number of the newest superblock seen
	said   atomic.Uint64 // newest group that the writer has known to be durable, in this lineage

	// The remaining fields belong to the goroutine that follows the log.
	sc     *scanner // stands after the last group followed; nil for a file without a superblock
	last   Position // position of that group's first page
	page   Addr     // last page of that group, 0 before the first one
	open   bool     // the writer may make that group longer
	heard  uint64   // newest group that a page says was durable
	proven uint64   // newest group known to be durable, by a page or by a sync of this reader
}

const (
	followWindowPages = 16 // pages per read while following the log
	cachedRunPages    = 16 // longest value run that the page cache keeps
	defaultCacheBytes = 64 << 20
)

// Beside reports whether the store reads beside a writer.
func (s *reader) Beside() bool { return s.beside != nil }

// EnteredAt returns the stamp with which the header of the segment's present life was taken in, 0 if Open took
// it in.
func (s *reader) EnteredAt(a Addr) uint64 {
	b := s.beside
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.entered[s.segmentOf(a)]
}

// CheckpointedSince reports whether a checkpoint was begun after the given group was written. It is also true
// if the path leads to another file by now, or the log is of another lineage.
func (s *reader) CheckpointedSince(group uint64) bool {
	sb, same, err := s.peekLineage()
	return err != nil || !same || sb.runFirst > group
}

// peekLineage returns the newest superblock. same reports whether it is of the lineage that was loaded: of the
// same file, and no writer has recovered it since.
func (s *reader) peekLineage() (sb *superblock, same bool, err error) {
	b := s.beside
	seen := b.newest.Load()
	sb, err = s.peekSuperblock()
	if err != nil || sb == nil || sb.uuid != s.uuid || sb.lineage != s.lineage || sb.number < seen {
		return sb, false, err
	}
	for seen < sb.number && !b.newest.CompareAndSwap(seen, sb.number) {
		seen = b.newest.Load()
	}
	return sb, true, nil
}

// notReplaced returns an error if the page just read at a, which is of the given group, may have replaced a
// page of a lost group that was shown before.
func (s *reader) notReplaced(a Addr, group uint64) error {
	if s.beside == nil || group <= s.beside.said.Load() {
		return nil
	}
	_, same, err := s.peekLineage()
	if err == nil && !same {
		err = s.pageError(a, "the file was recovered since it was loaded")
	}
	return err
}

// CheckpointNumber returns the number of the newest complete checkpoint of a file, 0 if there is none.
func CheckpointNumber(fs vfs.FS, path string) (uint64, error) {
	f, err := fs.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("flashdbm: %w", err)
	}
	defer f.Close()
	s := newStore(fs, f, path, Options{Beside: true})
	sb, err := s.peekSuperblock()
	if err != nil || sb == nil {
		return 0, err
	}
	return sb.number, nil
}

// peekSuperblock returns the newest valid superblock, nil if the file has none. The other slot may be in the
// middle of a write.
func (s *reader) peekSuperblock() (*superblock, error) {
	var newest *superblock
	var pages [PageSize + superblockSize]byte
	n, err := s.read(pages[:], 0)
	if err != nil {
		return nil, err
	}
	for slot := range 2 {
		sb, err := getSuperblock(pages[min(slot*PageSize, n):min(slot*PageSize+superblockSize, n)])
		if err == nil && sb.number%2 == uint64(slot) && (newest == nil || sb.number > newest.number) {
			newest = &sb
		}
	}
	return newest, nil
}

// readWhole reads n bytes, from page a on, into newly allocated memory.
func (s *reader) readWhole(a Addr, n int64) ([]byte, error) {
	b := make([]byte, n)
	if read, err := s.read(b, a); err != nil {
		return nil, err
	} else if read < len(b) {
		return nil, s.pageError(a, "the file ends before it")
	}
	return b, nil
}

// copied reads n pages, from page a on, into newly allocated memory, and checks the first page.
func (s *reader) copied(a Addr, n int64, salt uint64) ([]byte, error) {
	b, err := s.readWhole(a, n*PageSize)
	if err != nil {
		return nil, err
	}
	if getMux(b).crc != pageCRC(salt, a, b[:PageSize]) {
		return nil, s.pageError(a, "checksum")
	}
	if err := s.notReplaced(a, getMux(b).group); err != nil {
		return nil, err
	}
	return b, nil
}

// copyPage is verifyPage for a reader beside a writer.
func (s *reader) copyPage(a Addr, kind Kind) ([]byte, error) {
	salt, ok := s.space.SaltOf(a)
	if !ok {
		return nil, s.pageError(a, "no such page in the file")
	}
	if p := s.beside.pages.get(a, salt); p != nil && PageKind(p) == kind {
		return p, nil
	}
	p, err := s.copyChecked(a, kind, salt)
	if err == nil && len(p) <= cachedRunPages*PageSize {
		s.beside.pages.put(a, salt, p)
	}
	return p, err
}

// copyChecked returns a checked copy of the page of the given kind at a, or of the run that starts there.
func (s *reader) copyChecked(a Addr, kind Kind, salt uint64) ([]byte, error) {
	p, err := s.copied(a, 1, salt)
	if err != nil {
		return nil, err
	}
	if k := PageKind(p); k != kind {
		return nil, s.pageError(a, "kind %d where %d belongs", k, kind)
	}
	if kind == KindRun {
		return s.copyRun(a, p, salt)
	}
	if kind == KindRecord {
		return s.copySpan(a, p, salt)
	}
	if err := s.opts.CheckNode(p); err != nil {
		return nil, s.pageError(a, "%v", err)
	}
	return p, nil
}

// copyRun returns the pages of the run whose first page is first.
func (s *reader) copyRun(a Addr, first []byte, salt uint64) ([]byte, error) {
	length, ok := s.runLength(a, first)
	if !ok {
		return nil, s.pageError(a, "%v", errRunLength)
	}
	run := first
	if pages := RunPages(length); pages > 1 {
		var err error
		if run, err = s.copied(a, pages, salt); err != nil {
			return nil, err
		}
		if again, ok := s.runLength(a, run); !ok || again != length {
			return nil, s.pageError(a, "%v", errRunLength)
		}
	}
	if crc32.Checksum(run[runPayloadAt:runPayloadAt+length], castagnoli) != binary.LittleEndian.Uint32(run[MuxSize+8:]) {
		return nil, s.pageError(a, "checksum of a value run")
	}
	return run, nil
}

// copySpan returns the page of records, with its raw pages, whose first page is first.
func (s *reader) copySpan(a Addr, first []byte, salt uint64) ([]byte, error) {
	p := first
	if pages := s.spanOf(a, PageName(first)); pages > 1 {
		var err error
		if p, err = s.copied(a, int64(pages), salt); err != nil {
			return nil, err
		}
	}
	p, err := s.verifySpan(a, p)
	if err != nil {
		return nil, s.pageError(a, "%v", err)
	}
	return p, nil
}

// copyRaw is Raw for a reader beside a writer.
func (s *reader) copyRaw(e Extent) ([]byte, error) {
	last := e.Addr + uint64(e.Pages())
	if e.Bytes == 0 || last > s.space.End() || s.segmentOf(last-1) != s.segmentOf(e.Addr) {
		return nil, s.pageError(e.Addr, "extent of a large value")
	}
	b, err := s.readWhole(e.Addr, int64(e.Bytes))
	if err != nil {
		return nil, err
	}
	if crc32.Checksum(b, castagnoli) != e.CRC {
		return nil, s.pageError(e.Addr, "checksum of a large value")
	}
	return b, nil
}
