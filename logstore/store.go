package logstore

import (
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/internal/event"
	"flashdbm/logstore/format"
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

// Store is an open database file. See the package's documentation for what may be called when.
type Store struct {
	*space.Usage        // what the tree and the log use of the file
	*space.Readers      // which pages snapshots keep
	*space.Reuse        // what can be cleaned, thinned or used again
	*space.Reservations // room that is promised and held back

	file         vfs.File
	fs           vfs.FS
	marked       bool // the caller marks what lives and reads nothing else
	path         string
	opts         Options
	uuid         [16]byte
	segmentPages uint32
	segmentShift uint
	chunkShift   uint
	chunks       atomic.Pointer[[]*chunk] // replaced as a whole; only grows
	space        *space.Map
	growing      sync.Mutex // held while the file grows; guards chunks; taken before syncing and space.mu
	syncing      sync.Mutex // held during each fdatasync, because one of two at once could miss the other's error; taken before space.mu
	failed       atomic.Pointer[failedError]
	events       *event.Hub // nil, or told of slow syncs, damage and what poisons the store

	beside *beside // nil unless opened with Options.Beside

	unsynced unsynced
	private  privateSyncs

	features    features
	zeroDue     atomic.Bool   // a small group has entered a segment: see ZeroAhead
	lastWritten atomic.Uint64 // newest group written to the system
	durable     atomic.Uint64 // newest group known to survive a power cut

	// Owned by the log's appender.
	tail      tail
	group     Group  // reused builder
	sinceBase []mark // record and page groups after the base
	bodies    []byte // scratch of AppendBodies
	last      lastPage

	lineage uint64 // lineage of the superblocks; set by Open and EndRecovery

	supers [2]*superblock // by slot, nil if damaged; owned by Open and EndRecovery, then by the one checkpoint under way

	startAt  atomic.Uint64 // pages appended before the newest checkpoint's scan start
	appended atomic.Uint64 // pages appended since Open, raw pages included
	groups   [CheckpointGroup + 1]atomic.Uint64
	syncs    atomic.Uint64
	syncTime atomic.Int64  // nanoseconds of the syncs that have ended
	syncedAt atomic.Uint64 // pages appended before the last successful sync began; written under syncing
	returned atomic.Uint64 // pages given back to the file system

	deviceFree atomic.Int64 // bytes that the file system had free when it was asked last
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

func (s *Store) setSegmentPages(n uint32) {
	s.segmentPages = n
	s.segmentShift = uint(bits.TrailingZeros32(n))
	chunk := max(s.opts.ChunkPages, uint64(n))
	if s.opts.ChunkPages == 0 {
		chunk = max(defaultChunkPages, uint64(n))
	}
	s.chunkShift = uint(bits.TrailingZeros64(chunk))
}

func (s *Store) segmentOf(a Addr) uint32       { return uint32(a >> s.segmentShift) }
func (s *Store) firstPage(segment uint32) Addr { return Addr(segment) << s.segmentShift }

func headerPage(segment uint32) uint64 { return format.HeaderPage(segment) }

func (s *Store) position() Position {
	t := &s.tail
	return Position{Segment: t.header.segment, Page: uint32(t.page), Group: t.group, Digest: t.digest, Check: uint32(t.header.salt)}
}

// Path returns the name by which the file was opened.
func (s *Store) Path() string { return s.path }

// UUID returns the file's identity, drawn at its creation.
func (s *Store) UUID() [16]byte { return s.uuid }

// SegmentPages returns the file's segment size in pages.
func (s *Store) SegmentPages() uint32 { return s.segmentPages }

// LastGroup returns the number of the newest group written. See also Durable.
func (s *Store) LastGroup() uint64 { return s.lastWritten.Load() }

// Durable returns the number of the newest group known to survive a power cut.
func (s *Store) Durable() uint64 { return s.durable.Load() }

// Failed returns the error that poisoned the store, or nil.
func (s *Store) Failed() error {
	if f := s.failed.Load(); f != nil {
		return f
	}
	return nil
}

// fail poisons the store and returns the error that it answers from now on.
func (s *Store) fail(err error) error {
	if f := (&failedError{err}); s.failed.CompareAndSwap(nil, f) {
		s.events.Post(event.Event{Kind: event.Poisoned, Err: f})
	}
	return s.failed.Load()
}

// Fail poisons the store for a reason found by the caller.
func (s *Store) Fail(err error) error { return s.fail(err) }

// Tell sets the hub that the store posts events to. It is called before other goroutines use the store.
func (s *Store) Tell(events *event.Hub) { s.events = events }

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
func (s *Store) SinceCheckpoint() int64 { return int64(s.appended.Load()-s.startAt.Load()) * PageSize }

// Rebase records that redo starts after group base: the scan of the next checkpoint starts at the first record or page group behind it.
func (s *Store) Rebase(base uint64) {
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
