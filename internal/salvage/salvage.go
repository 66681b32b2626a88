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

// A Record is one that was recovered. What it leads to is valid until the function returns that was given it.
type Record struct {
	Key   []byte
	Value []byte
	Large io.Reader        // a value that is too long for a slice, else nil
	Size  int64            // bytes of the value
	Page  logstore.Addr    // of the leaf that it was found in; 0: it was found in redo records
	Redo  [2]logstore.Addr // then the first page of the redo record, and the one behind the last
	Group uint64           // that said so; of the leaf, as far as is known
	Ref   *btree.Ref       // what leads to the value; nil: it is beside the key
}

// Scope says what a Missing is about.
type Scope int

const (
	Keys        Scope = iota // a page of the tree: the keys from From on and below To, or to the end if To is empty; those of leaves found without it still come
	LostRecord               // the record with the key From
	Groups                   // groups of the log: what was committed in them
	Superblock               // the one in Page: if it was the newer of the two, what it knew of the end of the log is missing
	OlderRecord              // the record with the key From was put, and may not be its newest version
)

// A Missing is something that could not be recovered.
type Missing struct {
	Scope      Scope
	Page       logstore.Addr // 0 if it is not known
	From, To   []byte
	FirstGroup uint64
	LastGroup  uint64
	Err        error
}

// Options say how to salvage.
type Options struct {
	Older    bool               // put also older versions of records whose newest leaf is damaged
	Missing  func(Missing)      // nil: nobody asks
	Progress func(bytes int64)  // bytes of the file that were looked at since the last call; nil: nobody asks
	Emit     func(Record) error // takes a record; an error ends all. nil: records are looked at, and not handed out
}

// A Result is what was recovered.
type Result struct {
	Records, Bytes int64  // Bytes: of keys and values
	Older          int64  // of the records: those that may not be the newest version
	Damaged        int64  // pages of the tree that cannot be read
	LostRecords    int64  // records whose key is known and whose value, or whole key, cannot be read
	LostGroups     uint64 // groups of the log that are missing, or parts of them
	Dropped        uint64 // the newest group, which is not whole; 0 if it is
	Checkpoint     uint64 // last group of the checkpoint that was used, 0 if there was none
	Superblocks    int    // that can be read
	Headers        int    // segments whose header is lost and whose pages could be told all the same
}

// salvager is a salvage under way.
type salvager struct {
	f      *pagefile.File
	opts   Options
	result Result
	refs   []entry
	buf    []byte // a page

	checkpoint *checkpoint // nil: there is none
	low        uint64      // what its tree is as of at the least: where redo starts
	entries    map[logstore.PageID]logstore.Addr
	places     map[logstore.PageID]image // installed since
	removed    map[logstore.PageID]bool
	flushes    map[uint64]*flush                 // by first part, those whose end has not come
	shadows    map[logstore.PageID]logstore.Addr // newest images that were not installed
	base       uint64                            // what the log said last that the tree is as of, at the least
	broken     bool                              // nothing is installed any more
	stretches  []stretch                         // of keys that leaves had which were not installed, and ranges that redo records removed
	absent     *cover
	facts      []fact
	layered    map[string]bool

	visited  *logstore.UsedPages // pages of the tree
	once     *logstore.UsedPages // pages of values
	ordinals *logstore.UsedPages // logged values, by page and ordinal
	keyBytes int64
	lost     []lostRange
}

// Run recovers the records of a file. Each key comes once. The order is not defined.
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

// prepare looks at all pages, and finds out where the tree is and what redo records say.
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

// pageOf returns the page that an error is about, or else the given one.
func pageOf(err error, otherwise logstore.Addr) logstore.Addr {
	var page *logstore.PageError
	if errors.As(err, &page) && page.Addr != 0 && page.Addr < math.MaxInt64 {
		return page.Addr
	}
	return otherwise
}
