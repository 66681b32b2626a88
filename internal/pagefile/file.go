package pagefile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// A File is a database file that is read page by page.
type File struct {
	SegmentPages uint32
	Guessed      bool // SegmentPages is the default value: neither a superblock nor the header of a segment other than the first has it
	UUID         [16]byte
	Supers       [2]Superblock
	Pages        uint64 // whole pages of the file
	Size         int64  // bytes of the file

	f        vfs.File
	path     string
	segments map[uint32]*Segment // segments looked at so far
	salts    map[uint32][]uint64 // salts of segments, from checkpoints
	before   []uint64            // salts of predecessors, from headers
	buf      []byte
	page     []byte
}

// A Superblock is the content of page 0 or 1, or the reason why it cannot be used.
type Superblock struct {
	logstore.Superblock
	Err error
}

// A Segment is what is known of a segment.
type Segment struct {
	Header    logstore.SegmentHeader
	HasHeader bool
	Known     bool // Seed is known
	Seed      logstore.Seed
}

// Private reports whether the segment is known to hold no part of the log.
func (g *Segment) Private() bool { return g.HasHeader && g.Header.Private }

// Open opens the file at path for reading. If a process has the file open for writing, Open waits at most the
// given time for its lock, and then returns an error that wraps vfs.ErrLocked. If ctx ends before that, Open
// returns the error of ctx. An error that wraps logstore.ErrFormat says that the file is no database, or a
// database of a newer program.
func Open(ctx context.Context, fs vfs.FS, path string, wait time.Duration) (*File, error) {
	f, err := vfs.OpenLocked(ctx, func() (vfs.File, error) { return fs.Open(path, os.O_RDONLY, 0) }, false, wait)
	if err != nil {
		return nil, fmt.Errorf("flashdbm: %w", err)
	}
	x := &File{f: f, path: path, segments: map[uint32]*Segment{}, salts: map[uint32][]uint64{}, page: make([]byte, logstore.PageSize)}
	if err := x.open(); err != nil {
		f.Close()
		return nil, err
	}
	return x, nil
}

func (x *File) open() error {
	size, err := x.f.Size()
	if err != nil {
		return fmt.Errorf("flashdbm: %w", err)
	}
	x.Size, x.Pages = size, uint64(size)/logstore.PageSize
	for slot := range x.Supers {
		sb := &x.Supers[slot]
		if sb.Err = x.Read(uint64(slot), x.page); sb.Err == nil {
			sb.Superblock, sb.Err = logstore.DecodeSuperblock(slot, x.page)
		}
		if errors.Is(sb.Err, logstore.ErrFormat) {
			return fmt.Errorf("%s: %w", x.path, sb.Err)
		}
	}
	if sb := x.Newest(); sb != nil {
		x.SegmentPages, x.UUID = sb.SegmentPages, sb.UUID
		return nil
	}
	return x.guess()
}

// Newest returns the newer of the usable superblocks, nil if there is none.
func (x *File) Newest() *Superblock {
	a, b := &x.Supers[0], &x.Supers[1]
	switch {
	case a.Err != nil && b.Err != nil:
		return nil
	case a.Err != nil || b.Err == nil && b.Number > a.Number:
		return b
	}
	return a
}

// guess finds the size of a segment and the UUID from headers of segments, which it searches in the whole file.
func (x *File) guess() error {
	type found struct {
		pages uint32
		uuid  [16]byte
	}
	votes := map[found]int{}
	uuids := map[[16]byte]int{}
	err := x.eachPage(0, x.Pages, func(a uint64, p []byte) {
		h, ok := logstore.DecodeSegmentHeader(p)
		if !ok {
			return
		}
		uuids[h.UUID]++
		if h.Segment == 0 || a%uint64(h.Segment) != 0 {
			return
		}
		if n := a / uint64(h.Segment); n >= logstore.MinSegmentPages && n <= logstore.MaxSegmentPages && n&(n-1) == 0 {
			votes[found{uint32(n), h.UUID}]++
		}
	})
	if err != nil {
		return err
	}
	if len(uuids) == 0 {
		return fmt.Errorf("%w: %s has neither a superblock nor a segment header of a database", logstore.ErrFormat, x.path)
	}
	best := 0
	for v, n := range votes {
		if n > best {
			best, x.SegmentPages, x.UUID = n, v.pages, v.uuid
		}
	}
	if best > 0 {
		return nil
	}
	x.SegmentPages, x.Guessed = logstore.DefaultSegmentPages, true
	for u, n := range uuids {
		if n > best {
			best, x.UUID = n, u
		}
	}
	return nil
}

// Close closes the file.
func (x *File) Close() error { return x.f.Close() }

// Path returns the path with which the file was opened.
func (x *File) Path() string { return x.path }

// Error returns an error about the page at a.
func (x *File) Error(a uint64, format string, args ...any) error {
	return &logstore.PageError{Path: x.path, Addr: a, What: fmt.Sprintf(format, args...)}
}

// Read reads pages from a on into p, whose length must be a multiple of the page size.
func (x *File) Read(a uint64, p []byte) error {
	n := uint64(len(p)) / logstore.PageSize
	if a+n > x.Pages || a+n < a {
		return x.Error(a, "behind the end of the file, which has %d pages", x.Pages)
	}
	if _, err := x.f.ReadAt(p, int64(a)*logstore.PageSize); err == io.EOF {
		return x.Error(a, "the file was cut short")
	} else if err != nil {
		return x.Error(a, "cannot be read: %v", err)
	}
	return nil
}

// readPages is how many pages eachPage reads at a time.
const readPages = 64

// eachPage calls fn with each page from first to end-1 that can be read and is not in a hole. p is valid until fn
// returns.
func (x *File) eachPage(first, end uint64, fn func(a uint64, p []byte)) error {
	if x.buf == nil {
		x.buf = make([]byte, readPages*logstore.PageSize)
	}
	for a := first; a < end; {
		data, err := vfs.NextData(x.f, int64(a)*logstore.PageSize)
		if err != nil {
			return fmt.Errorf("flashdbm: %w", err)
		}
		a = max(a, uint64(data)/logstore.PageSize)
		n := min(readPages, max(end, a)-a)
		buf := x.buf[:n*logstore.PageSize]
		if x.Read(a, buf) == nil {
			for i := range n {
				fn(a+i, buf[i*logstore.PageSize:(i+1)*logstore.PageSize])
			}
		} else { // one of them cannot be read
			for i := range n {
				if x.Read(a+i, x.page) == nil {
					fn(a+i, x.page)
				}
			}
		}
		a += n
	}
	return nil
}

// SegmentOf returns the number of the segment that contains page a.
func (x *File) SegmentOf(a uint64) uint32 { return uint32(a / uint64(x.SegmentPages)) }

// FirstPage returns the first page of a segment.
func (x *File) FirstPage(n uint32) uint64 { return uint64(n) * uint64(x.SegmentPages) }

// EachSegment calls fn with the number of each segment, in order, except segments that are holes as a whole.
func (x *File) EachSegment(fn func(n uint32) error) error {
	size := uint64(x.SegmentPages)
	for n := uint64(0); n*size < x.Pages; n++ {
		data, err := vfs.NextData(x.f, int64(n*size)*logstore.PageSize)
		if err != nil {
			return fmt.Errorf("flashdbm: %w", err)
		}
		if n = max(n, uint64(data)/logstore.PageSize/size); n*size >= x.Pages || n > 1<<32-1 {
			break
		}
		if err := fn(uint32(n)); err != nil {
			return err
		}
	}
	return nil
}

// Segments returns the numbers of the segments read so far, in order.
func (x *File) Segments() []uint32 {
	all := make([]uint32, 0, len(x.segments))
	for n := range x.segments {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b uint32) int { return cmp.Compare(a, b) })
	return all
}
