package logstore

import (
	"fmt"

	"flashdbm/logstore/space"
)

// An image is a whole database file that is written from its first byte to its last without seeking back, for
// example to a pipe. Its content is what the engine would have written for a database that was loaded and
// closed, in this order:
//
//	superblocks 2 and 3      both of the one checkpoint
//	segment 0                its header; and the tree from there on, if there are no large values
//	private segments         the extents of all large values, without gaps
//	segments of the log      the tree, children before parents, and value runs before the leaves that refer to them
//	checkpoint               right after the tree; zeros up to the end of the file
//
// Rules:
//
//  1. The superblocks come first and must say where the checkpoint lies, which comes last. So the caller first
//     announces every page to an ImagePlan: the addresses follow from the sizes and their order alone.
//  2. The scan of the log starts at the checkpoint's first group, before which the chain digest is 0. So the
//     superblocks need no checksum of what follows them. The pages before that group are of group 1, the base
//     of the checkpoint's table, and are not part of a chain.
//  3. The log continues after the checkpoint, in the checkpoint's last segment or in the next one, which is
//     then after the end of the file.
//  4. The file cannot be opened before its last byte is there: the checkpoint is missing until then.
type ImagePlan struct {
	near    imageLayout // addresses if the tree begins in segment 0
	far     imageLayout // addresses if the tree begins in a segment of its own, counted as if that were segment 1
	extents imageLayout // addresses of the extents of large values

	features uint64 // features of the file in addition to those that every image has
}

// imageGroup is the group of all pages of an image except those of its checkpoint.
const imageGroup = firstGroup

// imageLayout allocates the pages of a file in ascending order.
type imageLayout struct {
	size uint64 // pages of a segment
	at   Addr   // address after the last page allocated
	used uint64 // number of segments with an allocated page
	last uint64 // number of the last such segment, plus 1; 0 for none
}

// take allocates n adjacent pages in one segment and returns the first.
func (l *imageLayout) take(n uint64) Addr {
	for {
		segment := l.at / l.size
		l.at = max(l.at, segment*l.size+headerPage(uint32(segment))+1)
		if l.at+n <= (segment+1)*l.size {
			break
		}
		l.at = (segment + 1) * l.size
	}
	if segment := l.at/l.size + 1; segment != l.last {
		l.used, l.last = l.used+1, segment
	}
	l.at += n
	return l.at - n
}

// extend allocates up to n adjacent pages: as many as the segment has left, but at least one.
func (l *imageLayout) extend(n uint64) (first Addr, got uint64) {
	first = l.take(1)
	got = min(n, l.size-first%l.size)
	l.at = first + got
	return first, got
}

// Keyspaces marks the file as one whose keys are those of keyspaces.
func (p *ImagePlan) Keyspaces() { p.features |= featureKeyspaces }

// NewImagePlan begins the plan of a file with segments of segmentPages pages.
func NewImagePlan(segmentPages uint32) *ImagePlan {
	size := uint64(segmentPages)
	return &ImagePlan{near: imageLayout{size: size}, far: imageLayout{size: size, at: size}, extents: imageLayout{size: size, at: size}}
}

// Page announces a page of the tree.
func (p *ImagePlan) Page() {
	p.near.take(1)
	p.far.take(1)
}

// Run announces a value run with a payload of the given number of bytes.
func (p *ImagePlan) Run(bytes int64) error {
	if bytes > maxRun(p.near.size) {
		return fmt.Errorf("flashdbm: a value run of %d bytes in segments of %d pages", bytes, p.near.size)
	}
	p.near.take(uint64(RunPages(bytes)))
	p.far.take(uint64(RunPages(bytes)))
	return nil
}

// Large announces a large value and the run that lists its extents. key is the length of a key before the list,
// 0 if the leaf holds the whole key.
func (p *ImagePlan) Large(key, bytes int64) error {
	n := int64(0)
	p.extents.each(bytes, maxExtents(p.near.size, key), func(Addr, uint32) error { n++; return nil })
	return p.Run(key + n*extentSize + 4)
}

// maxExtents returns how many extents a run can list after a key of the given length.
func maxExtents(segmentPages uint64, key int64) uint64 {
	return uint64(maxRun(segmentPages)-key-4) / extentSize
}

// each calls f with the address and the length in bytes of each extent of a value. A value begins where the
// previous one ends, unless it would then have more than most extents; in that case it begins in a new segment.
func (l *imageLayout) each(bytes int64, most uint64, f func(Addr, uint32) error) error {
	pages := uint64(bytes+PageSize-1) / PageSize
	if full := l.size - 1; pages/full+2 > most {
		l.at = (l.at + l.size - 1) / l.size * l.size
	}
	for pages > 0 {
		first, n := l.extend(pages)
		b := min(bytes, int64(n)*PageSize)
		if err := f(first, uint32(b)); err != nil {
			return err
		}
		pages, bytes = pages-n, bytes-b
	}
	return nil
}

// imageShape is the layout of an image.
type imageShape struct {
	size       uint64 // pages of a segment
	private    uint64 // number of segments of extents, from segment 1 on
	tree       Addr   // address at or before the tree's first page
	end        Addr   // address after the tree's last page
	checkpoint Addr   // address of the checkpoint's first page
	behind     Addr   // address after the checkpoint's last page
	parts      uint64 // number of the checkpoint's groups
	pages      Addr   // length of the file
}

// shape returns the layout of a file whose checkpoint has a table of the given number of bytes.
func (p *ImagePlan) shape(table int) imageShape {
	s := imageShape{size: p.near.size}
	l := p.near
	if p.extents.used > 0 {
		s.private = p.extents.used
		l = p.far
		l.at += (s.private) * s.size
		l.last += s.private
		s.tree = (s.private + 1) * s.size
	}
	s.end = l.at
	live, words := l.used+s.private, (s.size+63)/64
	tree := l
	for segments := uint64(0); ; {
		l = tree
		stream := streamHeader + uint64(table) + 4 + segments*space.EntrySize + live*words*8
		pages := (stream + BodySize - 1) / BodySize
		s.parts = (pages + partPages - 1) / partPages
		s.checkpoint = l.take(1)
		for range pages - 1 {
			l.take(1)
		}
		s.behind = l.at
		n := (s.behind + s.size - 1) / s.size
		if n == segments {
			break
		}
		segments = n
	}
	s.pages = ImagePages(s.behind, s.size)
	return s
}

// ImagePages returns the length in pages of an image whose checkpoint ends before the given page.
func ImagePages(end Addr, segmentPages uint64) uint64 {
	pages := max(end, initialPages)
	if pages > segmentPages {
		pages = (pages + segmentPages - 1) / segmentPages * segmentPages
	}
	return pages
}
