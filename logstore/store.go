package logstore

import (
	"os"
	"time"

	"flashdbm/logstore/space"
	"flashdbm/logstore/vfs"
)

// Options configure a store. The zero value of each field is its default.
type Options struct {
	SegmentPages uint32                   // of a new file; 0 = DefaultSegmentPages
	ChunkPages   uint64                   // pages of one mapping, a power of two and a multiple of the segment size; 0 = 1 GiB
	MaxFileSize  int64                    // bytes; 0 = no limit
	FileMode     os.FileMode              // of a new file; 0 = 0600
	ReadOnly     bool                     // shared with other readers, never written
	Synced       bool                     // groups are synced as they come, so writing zeros ahead pays: see zero.go
	Growing      bool                     // a new file may have growing pages from its beginning: see KeepOpen
	Beside       bool                     // ReadOnly while another process may be writing: see beside.go
	CacheBytes   int64                    // Beside: bytes of verified copies of pages that are kept; 0 = 64 MiB
	Table        *SegmentTable            // Beside: source of the segment table's memory, to which Close returns it; nil: none
	LockTimeout  time.Duration            // how long to wait for the file's lock
	CheckNode    func(image []byte) error // checks the structure of a tree page at its first touch; nil accepts every page, also one never marked live
}

const defaultChunkPages = 1 << 30 / PageSize

// Store is an open database file. The package documentation says which methods may be called when, and what the
// parts are.
type Store struct {
	*space.Usage        // what the tree and the log use in the file
	*space.Readers      // which pages snapshots keep
	*space.Reuse        // which segments can be cleaned, thinned or reused
	*space.Reservations // pages promised to transactions, and pages held back

	disk     // the file
	mapping  // the mappings of the file, and what is known about its pages
	syncer   // what is durable
	growth   // growth of the file, and space given back
	appender // the end of the log
	reader   // reading of pages and values

	supers [2]*superblock // by slot, nil if damaged; belongs to Open and EndRecovery, then to the one checkpoint in progress
}

// newStore returns a store of an open file.
func newStore(fs vfs.FS, file vfs.File, path string, opts Options) *Store {
	s := &Store{disk: disk{fs: fs, file: file, path: path, opts: opts}}
	s.mapping.disk = &s.disk
	s.syncer.disk, s.syncer.mapping = &s.disk, &s.mapping
	s.growth.disk, s.growth.mapping, s.growth.syncer = &s.disk, &s.mapping, &s.syncer
	s.appender.disk, s.appender.mapping, s.appender.syncer, s.appender.growth = &s.disk, &s.mapping, &s.syncer, &s.growth
	s.reader.disk, s.reader.mapping, s.reader.syncer = &s.disk, &s.mapping, &s.syncer
	s.chunks.Store(&[]*chunk{})
	return s
}

// tail is the place of the next group.
type tail struct {
	header header // header of the segment
	page   uint64 // next page in the segment; the segment's size when it is full
	fresh  uint64 // pages of the segment from this one on were never written, as far as is known
	group  uint64 // number of the next group
	digest uint32
}

// mark records where a group starts and how much of the log precedes it.
type mark struct {
	at       Position
	appended uint64
}

func (s *appender) position() Position {
	t := &s.tail
	return Position{Segment: t.header.segment, Page: uint32(t.page), Group: t.group, Digest: t.digest, Check: uint32(t.header.salt)}
}

// Counters counts what was appended and synced since Open.
type Counters struct {
	RecordGroups, PageGroups, FlushGroups, CheckpointGroups uint64
	Pages                                                   uint64 // pages appended, raw pages included
	Syncs                                                   uint64
	SyncTime                                                time.Duration // time that these syncs took, all together
	ReturnedBytes                                           uint64        // bytes given back to the file system: cut off or punched
}

// Counters returns the present counts.
func (s *Store) Counters() Counters {
	return Counters{
		RecordGroups: s.groups[RecordGroup].Load(), PageGroups: s.groups[PageGroup].Load(), FlushGroups: s.groups[FlushGroup].Load(),
		CheckpointGroups: s.groups[CheckpointGroup].Load(), Pages: s.appended.Load(), Syncs: s.syncs.Load(),
		SyncTime: time.Duration(s.syncTime.Load()), ReturnedBytes: s.returned.Load() * PageSize,
	}
}

// SinceCheckpoint returns the bytes of log that an open would have to scan.
func (s *appender) SinceCheckpoint() int64 {
	return int64(s.appended.Load()-s.startAt.Load()) * PageSize
}

// Rebase records that redo starts after group base: the scan of the next checkpoint starts at the first record
// group or page group after base.
func (s *appender) Rebase(base uint64) {
	n := 0
	for n < len(s.sinceBase) && s.sinceBase[n].at.Group <= base {
		n++
	}
	s.sinceBase = append(s.sinceBase[:0], s.sinceBase[n:]...)
}

// Close releases the file. It writes nothing.
func (s *Store) Close() error {
	err := s.unmap()
	s.last.unmap()
	if e := s.file.Close(); err == nil {
		err = e
	}
	if t := s.opts.Table; t != nil && s.space != nil {
		s.space.Leave(t)
	}
	return err
}
