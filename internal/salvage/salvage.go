package salvage

import (
	"context"
	"errors"
	"io"
	"math"

	"flashdbm/internal/btree"
	"flashdbm/internal/pagefile"
	"flashdbm/logstore"
)

// A Record is a recovered record. Its slices and reader are valid until the function that gets it returns.
type Record struct {
	Key   []byte
	Value []byte
	Large io.Reader        // a value that is too long for a slice, otherwise nil
	Size  int64            // bytes of the value
	Page  logstore.Addr    // leaf in which it was found; 0: it was found in redo records
	Redo  [2]logstore.Addr // the first page of the redo record, and the page after its last
	Group uint64           // group that wrote it, or the leaf, as far as is known
	Ref   *btree.Ref       // reference to the value; nil: the value is in Value or Large
}

// Scope says what a Missing is about.
type Scope int

const (
	Keys        Scope = iota // a page of the tree: keys from From on and below To, or to the end if To is empty; those of leaves found later still come
	LostRecord               // the record with the key From
	Groups                   // groups of the log, with what was committed in them
	Superblock               // a superblock, in Page: if it was the newer of the two, its information on the end of the log is missing
	Segment                  // pages of a segment that could not be recognized, or that the file does not have. If they belonged to the log, their commits are missing
	OlderRecord              // the record with the key From was emitted, and may not be the newest version
)

// A Missing is something that could not be recovered.
type Missing struct {
	Scope      Scope
	Page       logstore.Addr // 0 if unknown
	From, To   []byte
	FirstGroup uint64
	LastGroup  uint64
	Err        error
}

// Options say how to salvage.
type Options struct {
	Older    bool               // also emit older versions of records whose newest leaf is damaged
	Missing  func(Missing)      // called for each missing part; may be nil
	Progress func(bytes int64)  // called with the number of bytes of the file read since the last call; may be nil
	Emit     func(Record) error // gets each record; an error ends the salvage. nil: records are only verified and counted
}

// A Result is the result of a salvage.
type Result struct {
	Records, Bytes int64  // Bytes: of keys and values
	Older          int64  // those of Records that may not be the newest version
	Damaged        int64  // unreadable pages of the tree
	LostRecords    int64  // records whose key is known, and whose value, or whole key, is unreadable
	LostGroups     uint64 // groups of the log that are missing, or miss pages
	Dropped        uint64 // the newest group if it is incomplete, as far as can be told; otherwise 0
	Newest         uint64 // newest group of which a page was found
	Checkpoint     uint64 // last group of the checkpoint used, 0 if there was none
	Superblocks    int    // readable superblocks
	Headers        int    // segments whose header is lost, and whose pages were recognized nevertheless
}

// salvager is the state of a salvage.
type salvager struct {
	f      *pagefile.File
	opts   Options
	result Result
	refs   []entry
	buf    []byte // memory for one page

	checkpoint *checkpoint // nil: there is none
	low        uint64      // lower bound of the group whose state the checkpoint's tree has: the redo start
	entries    map[logstore.PageID]logstore.Addr
	places     map[logstore.PageID]image // pages installed since the checkpoint
	removed    map[logstore.PageID]bool
	flushes    map[uint64]*flush                 // by first part: flushes whose end was not found yet
	shadows    map[logstore.PageID]logstore.Addr // newest images that were not installed
	base       uint64                            // lower bound of the group whose state the tree has, according to the log read so far
	broken     bool                              // the log is damaged: nothing is installed any more
	stretches  []stretch                         // ranges of keys of leaves that were not installed, and ranges that redo records removed
	absent     *cover
	facts      []fact
	layered    map[string]bool

	visited  *logstore.UsedPages // pages of the tree visited
	once     *logstore.UsedPages // pages of values read
	ordinals *logstore.UsedPages // logged values read, by page and ordinal
	keyBytes int64
	lost     []lostRange
}

// Run recovers the records of a file and passes them to Options.Emit, each key once, in no defined order.
func Run(ctx context.Context, f *pagefile.File, opts Options) (Result, error) {
	s := newSalvager(f, opts)
	if err := s.prepare(ctx); err != nil {
		return s.result, err
	}
	if err := s.walk(ctx); err != nil {
		return s.result, err
	}
	return s.result, s.orphans(ctx)
}

func newSalvager(f *pagefile.File, opts Options) *salvager {
	return &salvager{
		f: f, opts: opts, buf: make([]byte, logstore.PageSize), shadows: map[logstore.PageID]logstore.Addr{},
		visited: logstore.NewPageSet(f.SegmentPages), once: logstore.NewPageSet(f.SegmentPages), ordinals: logstore.NewPageSet(f.SegmentPages),
	}
}

// prepare reads all pages, finds the tree, and reads the redo records.
func (s *salvager) prepare(ctx context.Context) error {
	if err := s.index(ctx); err != nil {
		return err
	}
	for slot := range s.f.Supers {
		if err := s.f.Supers[slot].Err; err != nil {
			s.missing(Missing{Scope: Superblock, Page: logstore.Addr(slot), Err: err})
		} else {
			s.result.Superblocks++
		}
	}
	if all := s.checkpoints(1); len(all) > 0 {
		s.checkpoint = all[0]
		s.result.Checkpoint = all[0].last
	}
	if err := s.replay(); err != nil {
		return err
	}
	s.sortFacts()
	s.absent = newCover(s.stretches)
	return nil
}

func (s *salvager) tell(bytes int64) {
	if s.opts.Progress != nil {
		s.opts.Progress(bytes)
	}
}

func (s *salvager) emit(r Record) error {
	if s.opts.Emit == nil {
		return nil
	}
	return s.opts.Emit(r)
}

func (s *salvager) missing(m Missing) {
	switch m.Scope {
	case Keys:
		s.result.Damaged++
	case LostRecord:
		s.result.LostRecords++
	}
	if s.opts.Missing != nil {
		s.opts.Missing(m)
	}
}

// pageOf returns the page that an error names; if it names none, pageOf returns
// otherwise.
func pageOf(err error, otherwise logstore.Addr) logstore.Addr {
	var page *logstore.PageError
	if errors.As(err, &page) && page.Addr != 0 && page.Addr < math.MaxInt64 {
		return page.Addr
	}
	return otherwise
}
