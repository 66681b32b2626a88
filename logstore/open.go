package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"flashdbm/logstore/vfs"
)

// Recovery is what Open found. The caller rebuilds the tree's names from it, marks what lives, then calls EndRecovery.
type Recovery struct {
	Created  bool           // the file is new and has no checkpoint: the caller writes the first pages, then two checkpoints
	Table    []byte         // what the caller gave to the newest checkpoint
	Groups   []ScannedGroup // accepted groups from the scan start on, in order; of every kind
	Dropped  uint64         // number of a group that had started and was not whole, 0 if none was seen
	Restarts int            // how often the log went on in a fresh segment after a crash since the scan start
	proven   uint64         // newest group known durable
	super    *superblock
	entered  []header // segments that the log entered after the scan start's
	first    header
}

// Open opens or creates the database file at path and scans its log. See Recovery for how it goes on.
func Open(fs vfs.FS, path string, opts Options) (*Store, *Recovery, error) {
	if opts.CheckNode == nil {
		opts.CheckNode = func([]byte) error { return nil }
	}
	if opts.FileMode == 0 {
		opts.FileMode = 0o600
	}
	s := &Store{fs: fs, path: path, opts: opts}
	s.chunks.Store(&[]*chunk{})
	f, err := openFile(fs, path, opts)
	if err != nil {
		return nil, nil, err
	}
	s.file = f
	rec, err := s.load()
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, rec, nil
}

func openFile(fs vfs.FS, path string, opts Options) (vfs.File, error) {
	flag := os.O_RDWR
	if opts.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := fs.Open(path, flag, 0)
	if !opts.ReadOnly && errors.Is(err, os.ErrNotExist) {
		f, err = fs.Open(path, flag|os.O_CREATE|os.O_EXCL, opts.FileMode)
		if errors.Is(err, os.ErrExist) { // somebody else was faster
			f, err = fs.Open(path, flag, 0)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("flashdbm: %w", err)
	}
	for deadline := time.Now().Add(opts.LockTimeout); ; time.Sleep(5 * time.Millisecond) {
		err = f.Lock(!opts.ReadOnly)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, vfs.ErrLocked) || !time.Now().Before(deadline) {
			f.Close()
			return nil, fmt.Errorf("flashdbm: %w", err)
		}
	}
}

// load reads the superblocks, the newest checkpoint and the log behind it.
func (s *Store) load() (*Recovery, error) {
	size, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("flashdbm: %w", err)
	}
	sb, err := s.readSuperblocks(size)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return s.create()
	}
	s.setSegmentPages(sb.segmentPages)
	s.uuid = sb.uuid
	s.space = newSpace(sb.segmentPages, s.opts.MaxFileSize)
	s.space.pages = uint64(size) / PageSize
	if s.space.pages > uint64(s.space.segmentPages) { // a torn growth may leave part of a segment: it is grown again
		s.space.pages -= s.space.pages % uint64(s.segmentPages)
	}
	if err := s.mapTo(s.space.pages); err != nil {
		return nil, err
	}
	rec := &Recovery{super: sb, proven: sb.runLast}
	sc := s.newScanner()
	runs, err := s.readCheckpoint(sc, rec)
	if err != nil {
		return nil, err
	}
	if err := s.scan(sc, rec); err != nil {
		return nil, err
	}
	s.space.runs[sb.number%2] = runs
	s.space.oldestStart = sb.start.Group
	for slot, o := range s.supers {
		if o != nil && o != sb {
			s.space.oldestStart = min(s.space.oldestStart, o.start.Group)
			s.space.runs[slot] = s.runSegments(sc, o)
		}
	}
	return rec, nil
}

// readSuperblocks decodes both and returns the newer valid one, nil for a file that was never completed.
func (s *Store) readSuperblocks(size int64) (*superblock, error) {
	if size == 0 {
		if s.opts.ReadOnly {
			return nil, nil
		}
		return nil, nil
	}
	var newest *superblock
	var worst error
	blank := true
	page := make([]byte, superblockSize)
	for slot := range s.supers {
		clear(page)
		if _, err := s.file.ReadAt(page, int64(slot)*PageSize); err != nil && size >= int64(slot+1)*PageSize {
			return nil, fmt.Errorf("flashdbm: read %s: %w", s.path, err)
		}
		for _, b := range page {
			blank = blank && b == 0
		}
		sb, err := getSuperblock(page)
		if err == nil && sb.number%2 != uint64(slot) {
			err = fmt.Errorf("%w: misplaced superblock", ErrCorrupt)
		}
		if err != nil {
			if worst == nil || !errors.Is(err, errNoSuperblock) {
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
	case newest != nil && errors.Is(worst, ErrFormat):
		return nil, fmt.Errorf("%s: %w", s.path, worst)
	case newest != nil:
		if o := s.supers[1-newest.number%2]; o != nil && (o.uuid != newest.uuid || o.segmentPages != newest.segmentPages) {
			return nil, fmt.Errorf("%w: %s: superblocks of two databases", ErrCorrupt, s.path)
		}
		return newest, nil
	case blank && size <= initialPages*PageSize: // its creation was cut short before anything could be stored
		return nil, nil
	case errors.Is(worst, errNoSuperblock):
		return nil, fmt.Errorf("%w: %s is not a flashdbm database", ErrFormat, s.path)
	}
	return nil, fmt.Errorf("%s: both superblocks: %w", s.path, worst)
}

// create lays out a new file: segment 0, which takes 128 KiB at first. The superblocks come with the caller's two checkpoints.
func (s *Store) create() (*Recovery, error) {
	n := s.opts.SegmentPages
	if n == 0 {
		n = DefaultSegmentPages
	}
	if n < MinSegmentPages || n > MaxSegmentPages || n&(n-1) != 0 {
		return nil, fmt.Errorf("flashdbm: segment size of %d pages: a power of two from %d to %d is wanted", n, MinSegmentPages, MaxSegmentPages)
	}
	s.setSegmentPages(n)
	s.uuid = randomUUID()
	s.space = newSpace(n, s.opts.MaxFileSize)
	h := header{successor: 1, salt: randomSalt(), sequence: 1, group: firstGroup, uuid: s.uuid}
	s.tail = tail{header: h, page: headerPage(0) + 1, group: firstGroup}
	s.space.extendTo(2)
	s.space.setSalt(0, h.salt, h.sequence)
	s.space.setTail(&s.tail)
	if s.opts.ReadOnly { // an empty file, opened read-only, is an empty database that is never written
		return &Recovery{Created: true}, nil
	}
	err := s.file.Allocate(0, initialPages*PageSize)
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
	if err == nil {
		err = s.fs.SyncDir(s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("flashdbm: create %s: %w", s.path, err)
	}
	s.space.pages = initialPages
	return &Recovery{Created: true}, s.mapTo(initialPages)
}

// readCheckpoint reads the stream of the newest checkpoint and returns the segments that hold it.
func (s *Store) readCheckpoint(sc *scanner, rec *Recovery) (map[uint32]bool, error) {
	sb := rec.super
	if err := sc.seek(sb.run); err != nil {
		return nil, err
	}
	segments := map[uint32]bool{}
	entered := []header{sc.header}
	var stream []byte
	for sc.group <= sb.runLast {
		g, ok, err := sc.next(func(h header) { entered = append(entered, h) })
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, s.pageError(s.firstPage(sc.segment)+sc.page, "group %d of the newest checkpoint", sc.group)
		}
		if g.Kind != CheckpointGroup || g.Count != sb.runFirst {
			continue
		}
		for _, p := range g.Pages {
			segments[s.segmentOf(p.Addr)] = true
			if p.Kind == KindCheckpoint {
				body := make([]byte, BodySize)
				if _, err := s.file.ReadAt(body, int64(p.Addr)*PageSize+MuxSize); err != nil {
					return nil, fmt.Errorf("flashdbm: read %s: %w", s.path, err)
				}
				stream = append(stream, body...)
			}
		}
	}
	table, spaceMap, err := splitStream(stream)
	if err == nil {
		err = s.space.decode(spaceMap)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: newest checkpoint: %w", s.path, err)
	}
	rec.Table = table
	for _, h := range entered { // opened after the map was taken
		s.space.extendTo(h.segment + 1)
		s.space.setSalt(h.segment, h.salt, h.sequence)
		s.space.setWritten(s.firstPage(h.segment), sb.runLast)
	}
	s.space.adopt()
	return segments, nil
}

func splitStream(stream []byte) (table, spaceMap []byte, err error) {
	if len(stream) >= streamHeader {
		n, m := binary.LittleEndian.Uint64(stream), binary.LittleEndian.Uint64(stream[8:])
		stream = stream[streamHeader:]
		if size := uint64(len(stream)); n <= size && m <= size-n {
			return stream[:n], stream[n : n+m], nil
		}
	}
	return nil, nil, fmt.Errorf("%w: lengths of the table and the space map", ErrCorrupt)
}

// runSegments returns the segments of the older superblock's checkpoint, as far as they can be read.
func (s *Store) runSegments(sc *scanner, sb *superblock) map[uint32]bool {
	segments := map[uint32]bool{sb.run.Segment: true}
	if sc.seek(sb.run) != nil {
		return segments
	}
	for sc.group <= sb.runLast {
		g, ok, err := sc.next(func(header) {})
		if err != nil || !ok {
			break
		}
		for _, p := range g.Pages {
			segments[s.segmentOf(p.Addr)] = true
		}
	}
	return segments
}

// scan reads the log from the scan start to its end and tells the end from damage.
func (s *Store) scan(sc *scanner, rec *Recovery) error {
	if err := sc.seek(rec.super.start); err != nil {
		return err
	}
	rec.first = sc.header
	var group uint64
	accept := func(h header) {
		s.space.extendTo(h.segment + 1)
		s.space.setSalt(h.segment, h.salt, h.sequence)
		s.space.setWritten(s.firstPage(h.segment), max(h.group, 1)-1)
		rec.entered = append(rec.entered, h)
		if h.index == 0 && sc.page == headerPage(h.segment)+1 && group > 0 {
			rec.Restarts++
		}
	}
	for {
		g, ok, err := sc.next(accept)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if g.lag != lagUnknown && g.No > uint64(g.lag) {
			rec.proven = max(rec.proven, g.No-uint64(g.lag)-1)
		}
		for _, p := range g.Pages {
			s.space.setWritten(p.Addr, g.No)
		}
		rec.Groups = append(rec.Groups, g)
		s.appended.Add(uint64(len(g.Pages)))
		group = g.No
	}
	hole := sc.group
	end := tail{header: sc.header, page: sc.page, group: hole, digest: sc.digest}
	if hole <= rec.super.runLast {
		return s.pageError(s.firstPage(sc.segment)+sc.page, "group %d of the log, which was durable", hole)
	}
	if by, err := sc.vouched(hole); err != nil {
		return err
	} else if by != 0 {
		return s.pageError(s.firstPage(end.header.segment)+end.page, "group %d of the log, which was durable when page %d was written", hole, by)
	}
	s.tail = end
	s.space.extendTo(max(end.header.segment, end.header.successor) + 1)
	s.space.setTail(&s.tail)
	s.lastWritten.Store(hole - 1)
	return nil
}
