package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"flashdbm/logstore/space"
	"flashdbm/logstore/vfs"
)

// Recovery is what Open found in the file. The caller rebuilds the tree's names from it, marks what is live,
// and calls EndRecovery.
type Recovery struct {
	Created    bool           // the file is new and has no checkpoint: the caller writes the first pages, then two checkpoints
	Unsyncable error          // Created: why the directory could not be synced; a power cut may take the file's name, and with it the file
	Table      []byte         // the caller's part of the newest checkpoint
	Groups     []ScannedGroup // accepted groups of every kind from the scan start on, in order
	Dropped    uint64         // number of an interrupted group at the end of the log; 0 if none was seen
	proven     uint64         // newest group known to be durable
	super      *superblock
	entered    []header  // headers of the scan start's segment and of those that the log entered after it
	remnants   []remnant // pages of interrupted groups, in the rest of the tail's segment
	successor  *header   // header of the tail's successor, if an interrupted group opened it
	mapped     uint32    // number of segments that the checkpoint's space map knows

	Locked time.Time // when Open had the file's lock; zero beside a writer

	Load time.Duration // time to read the superblocks and the newest checkpoint
	Scan time.Duration // time to scan the log after the checkpoint
}

// Open opens or creates the database file at path and scans its log. Recovery says what the caller does next.
func Open(fs vfs.FS, path string, opts Options) (*Store, *Recovery, error) {
	marked := opts.CheckNode != nil
	if !marked {
		opts.CheckNode = func([]byte) error { return nil }
	}
	if opts.FileMode == 0 {
		opts.FileMode = 0o600
	}
	if n := opts.ChunkPages; n&(n-1) != 0 {
		return nil, nil, fmt.Errorf("flashdbm: mappings of %d pages: the number must be a power of two", n)
	}
	s := newStore(fs, nil, path, opts)
	s.marked = marked
	if opts.Beside {
		s.opts.ReadOnly = true
		s.beside = &beside{entered: map[uint32]uint64{}}
		s.beside.pages.limit = max(cmp.Or(opts.CacheBytes, defaultCacheBytes)/cacheShards, 2*cachedRunPages*PageSize)
	}
	f, err := openFile(fs, path, s.opts)
	if err != nil {
		return nil, nil, err
	}
	locked := time.Now() // not before the lock: another process may have written the file until then
	s.file = f
	load := s.load
	if opts.ReadOnly && !opts.Beside {
		load = s.loadFromDevice
	}
	rec, err := load()
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	if !opts.Beside {
		rec.Locked = locked
	}
	if !opts.ReadOnly {
		s.NoteDevice()
	}
	return s, rec, nil
}

func openFile(fs vfs.FS, path string, opts Options) (vfs.File, error) {
	open := func() (vfs.File, error) { return openOrCreate(fs, path, opts) }
	var f vfs.File
	var err error
	if opts.Beside {
		f, err = open()
	} else {
		f, err = vfs.OpenLocked(context.Background(), open, !opts.ReadOnly, opts.LockTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("flashdbm: %w", err)
	}
	return f, nil
}

func openOrCreate(fs vfs.FS, path string, opts Options) (vfs.File, error) {
	flag := os.O_RDWR
	if opts.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := fs.Open(path, flag, 0)
	if !opts.ReadOnly && errors.Is(err, os.ErrNotExist) {
		f, err = fs.Open(path, flag|os.O_CREATE|os.O_EXCL, opts.FileMode)
		if errors.Is(err, os.ErrExist) { // another process has created it first
			f, err = fs.Open(path, flag, 0)
		}
	}
	return f, err
}

// load reads the superblocks, the newest checkpoint and the log after it.
func (s *Store) load() (*Recovery, error) {
	begin := time.Now()
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
	s.setChunkPages(s.opts.ChunkPages)
	s.uuid, s.lineage = sb.uuid, sb.lineage
	if s.beside != nil {
		s.beside.newest.Store(sb.number)
		s.beside.said.Store(sb.runLast)
	}
	s.features.wanted.Store(sb.incompatible)
	s.features.stated.Store(sb.incompatible)
	s.setSpace(space.New(sb.segmentPages, s.opts.MaxFileSize, s.opts.Table))
	s.space.SetPages(uint64(size) / PageSize)
	rec := &Recovery{super: sb, proven: sb.runLast}
	sc := s.newScanner()
	runs, err := s.readCheckpoint(sc, rec)
	if err != nil {
		return nil, err
	}
	sc.end = s.space.End() // the end of what the map considers allocated
	if err := s.mapTo(s.space.End()); err != nil {
		return nil, err
	}
	rec.Load = time.Since(begin)
	if err := s.scan(sc, rec); err != nil {
		return nil, err
	}
	rec.Scan = time.Since(begin) - rec.Load
	s.space.SetCheckpoint(sb.inSpace(runs))
	if s.beside != nil {
		s.startFollowing(sc, rec)
		return rec, nil
	}
	if o := s.supers[1-sb.number%2]; o != nil {
		s.space.SetCheckpoint(o.inSpace(s.runSegments(sc, o)))
	}
	return rec, nil
}

// scan reads the log from the scan start to its end and tells the end from damage.
func (s *Store) scan(sc *scanner, rec *Recovery) error {
	if err := sc.seek(rec.super.start); err != nil {
		return err
	}
	enter := func(h header) {
		s.enter(h)
		rec.entered = append(rec.entered, h)
	}
	enter(sc.header)
	for {
		g, ok, err := sc.next(enter)
		if err != nil {
			return err
		}
		if !ok {
			if again, err := sc.awaitWhole(); err != nil {
				return err
			} else if again {
				continue
			}
			err := s.checkEnd(sc, rec)
			if err == nil {
				break
			}
			if more, merr := s.wentOn(sc, rec); merr != nil || !more {
				return errors.Join(err, merr)
			}
			continue
		}
		s.keepBody(sc, &g, rec.Groups)
		if g.lag != lagUnknown && g.No > uint64(g.lag) {
			rec.proven = max(rec.proven, g.No-uint64(g.lag)-1)
		}
		s.space.Wrote(g.No, len(g.Pages), func(i int) Addr { return g.Pages[i].Addr })
		s.appended.Add(g.pages())
		rec.Groups = append(rec.Groups, g)
	}
	s.tail = tail{header: sc.header, page: sc.page, fresh: uint64(s.segmentPages), group: sc.group, digest: sc.digest}
	s.setTail()
	s.lastWritten.Store(sc.group - 1)
	return nil
}

// checkEnd tells the end of the log, where the scanner stands, from a hole in the log.
func (s *Store) checkEnd(sc *scanner, rec *Recovery) error {
	hole := sc.group
	if hole <= rec.super.runLast {
		return s.pageError(sc.here(), "group %d of the log, which was durable", hole)
	}
	by, err := sc.vouched(hole, rec.mapped, s.supers[0] != nil && s.supers[1] != nil)
	if err != nil {
		return err
	}
	if by != 0 {
		return s.pageError(sc.here(), "group %d of the log, which was durable when page %d was written", hole, by)
	}
	if n := sc.header.successor; n > max(s.space.Whole(), sc.segment+1) || n == sc.segment {
		return s.pageError(s.firstPage(sc.segment)+headerPage(sc.segment), "the log goes on in segment %d, which is not in the file", n)
	}
	started, err := sc.started()
	if err != nil {
		return err
	}
	if started {
		rec.Dropped = hole
	}
	rec.remnants, rec.successor, err = sc.remnants()
	return err
}
