package logstore

import (
	"fmt"

	"flashdbm/logstore/space"
)

// An image is a whole database file that is written from its first byte to its last, without going back: to a pipe, for example. It is
// what the engine would have written of a database that was loaded and closed, in this order:
//
//	superblocks 2 and 3, both of the one checkpoint
//	segment 0                its header; and the tree from there on, if there are no large values
//	private segments         the extents of all large values, back to back
//	segments of the log      the tree, children before parents, and value runs before the leaves that refer to them
//	checkpoint               right behind the tree; zeros up to the end of the file
//
// Rules:
//
//  1. The superblocks come first and have to say where the checkpoint lies, which is last. So an ImagePlan is told of every page before: the
//     places follow from the sizes and their order alone.
//  2. The scan of the log starts at the checkpoint's first group, before which the chain digest is 0. So the superblocks need no checksum of
//     what follows them. The pages before it are of group 1, the base of the checkpoint's table, and not of a chain.
//  3. The log goes on behind the checkpoint, in its segment or the one behind it, which is behind the end of the file as well.
//  4. Until its last byte is there the file cannot be opened: the checkpoint is missing.
type ImagePlan struct {
	near    imageLayout // of the tree if it begins in segment 0
	far     imageLayout // of the tree if it begins in a segment of its own, as if that were segment 1
	extents imageLayout // of large values

	features uint64 // of the file, beside those of its pages
}

// imageGroup is the group of all pages of an image but those of its checkpoint.
const imageGroup = firstGroup

// imageLayout hands out the pages of a file in ascending order.
type imageLayout struct {
	size uint64 // pages of a segment
	at   Addr   // behind the last page that was handed out
	used uint64 // segments with such a page
	last uint64 // the last of them, plus 1; 0 for none
}

// take returns the first of n pages in a row, which lie in one segment.
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

// extend hands out up to n pages in a row, as many as the segment has left, one at least.
func (l *imageLayout) extend(n uint64) (first Addr, got uint64) {
	first = l.take(1)
	got = min(n, l.size-first%l.size)
	l.at = first + got
	return first, got
}

// Keyspaces has the file say that its keys are those of keyspaces.
func (p *ImagePlan) Keyspaces() { p.features |= featureKeyspaces }

// NewImagePlan begins the plan of a file with segments of segmentPages pages.
func NewImagePlan(segmentPages uint32) *ImagePlan {
	size := uint64(segmentPages)
	return &ImagePlan{near: imageLayout{size: size}, far: imageLayout{size: size, at: size}, extents: imageLayout{size: size, at: size}}
}

// Page counts a page of the tree.
func (p *ImagePlan) Page() {
	p.near.take(1)
	p.far.take(1)
}

// Run counts a value run with a payload of the given bytes.
func (p *ImagePlan) Run(bytes int64) error {
	if bytes > maxRun(p.near.size) {
		return fmt.Errorf("flashdbm: a value run of %d bytes in segments of %d pages", bytes, p.near.size)
	}
	p.near.take(uint64(RunPages(bytes)))
	p.far.take(uint64(RunPages(bytes)))
	return nil
}

// Large counts a large value, with the list of its extents and a key before that: key is its length, 0 if the leaf has it whole.
func (p *ImagePlan) Large(key, bytes int64) error {
	n := int64(0)
	p.extents.each(bytes, maxExtents(p.near.size, key), func(Addr, uint32) error { n++; return nil })
	return p.Run(key + n*extentSize + 4)
}

// maxExtents returns how many extents a run can list behind a key.
func maxExtents(segmentPages uint64, key int64) uint64 {
	return uint64(maxRun(segmentPages)-key-4) / extentSize
}

// each calls f for each extent of a value: its address and its bytes. A value begins where the one before ends, unless it has more extents
// so than a list can have.
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

// imageShape is where everything of an image lies.
type imageShape struct {
	size       uint64 // pages of a segment
	private    uint64 // segments of extents, from 1 on
	tree       Addr   // at or before the tree's first page
	end        Addr   // behind the tree's last page
	checkpoint Addr   // its first page
	behind     Addr   // its last page, plus 1
	parts      uint64 // its groups
	pages      Addr   // of the file
}

// shape returns the shape of a file whose checkpoint has a table of the given bytes.
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
	s.pages = max(s.behind, initialPages)
	if s.pages > s.size {
		s.pages = (s.pages + s.size - 1) / s.size * s.size
	}
	return s
}
