package logstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"flashdbm/logstore/space"
)

// ErrImage means that what was written to an Image differs from its plan.
var ErrImage = errors.New("flashdbm: an image of the database is not as it was planned")

// An Image writes a database file: see ImagePlan. The caller writes all large values first, in the order of the
// plan, then pages, runs and lists, and then calls Finish. One goroutine uses an Image. After an error the
// Image is unusable.
type Image struct {
	w        io.Writer
	shape    imageShape
	features uint64 // as in ImagePlan
	table    int    // length of the checkpoint's table in bytes
	uuid     [16]byte
	seed     uint64 // from which the salts of the segments are made
	extents  imageLayout
	tree     imageLayout
	at       Addr   // address of the next page added to buf
	buf      []byte // pages before that address that are not written yet
	open     bool   // the last page in buf is a page of the tree whose body the caller is filling
	index    uint32 // index of the next page in imageGroup
	live     [][]uint64
	next     log // what the header of the next segment says about the page after it
}

// log is a position in the log between two pages.
type log struct {
	group  uint64
	index  uint32
	digest uint32
}

// imageBuffer is the number of pages in one write.
const imageBuffer = 64

// Image starts writing the planned file to w. table is the length in bytes of the table in the checkpoint.
func (p *ImagePlan) Image(w io.Writer, table int) *Image {
	im := &Image{w: w, shape: p.shape(table), features: p.features, table: table, uuid: randomUUID(), seed: randomSalt(), next: log{group: imageGroup}}
	size := im.shape.size
	im.extents = imageLayout{size: size, at: size}
	im.tree = imageLayout{size: size, at: im.shape.tree}
	im.buf = make([]byte, 0, imageBuffer*PageSize)
	im.live = make([][]uint64, im.shape.pages/size+1)
	return im
}

// Bytes returns the length of the file.
func (im *Image) Bytes() int64 { return int64(im.shape.pages) * PageSize }

// salt returns the salt of a segment: the seed mixed with the segment's number as in SplitMix64. It is odd and
// so never 0.
func (im *Image) salt(segment uint32) uint64 {
	z := im.seed + (uint64(segment)+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31 | 1
}

// room appends a zeroed page to the buffer and returns it.
func (im *Image) room() (page []byte, err error) {
	im.seal()
	if len(im.buf) == cap(im.buf) {
		if err := im.flush(); err != nil {
			return nil, err
		}
	}
	n := len(im.buf)
	im.buf = im.buf[:n+PageSize]
	im.at++
	page = im.buf[n:]
	clear(page)
	return page, nil
}

func (im *Image) flush() error {
	_, err := im.w.Write(im.buf)
	im.buf = im.buf[:0]
	return err
}

// seal adds the checksum to the open page of the tree, whose body is complete now.
func (im *Image) seal() {
	if im.open {
		im.open = false
		im.sum(im.buf[len(im.buf)-PageSize:], im.at-1)
	}
}

func (im *Image) sum(page []byte, a Addr) (crc uint32) {
	crc = pageCRC(im.salt(uint32(a/im.shape.size)), a, page)
	binary.LittleEndian.PutUint32(page, crc)
	return crc
}

// upTo writes what comes before page a: superblocks, headers, and zeros.
func (im *Image) upTo(a Addr) error {
	for im.at < a {
		at := im.at
		page, err := im.room()
		if err != nil {
			return err
		}
		switch segment := uint32(at / im.shape.size); {
		case at < 2:
			im.superblock(page, 2+at)
		case at%im.shape.size == headerPage(segment):
			h := im.header(segment)
			h.put(page)
		}
	}
	return nil
}

// header returns the header of a segment.
func (im *Image) header(segment uint32) header {
	h := header{segment: segment, salt: im.salt(segment), uuid: im.uuid}
	private := uint32(im.shape.private)
	if h.private = segment > 0 && segment <= private; h.private {
		return h
	}
	h.successor, h.sequence = segment+1, 1
	h.group, h.index, h.digest = im.next.group, im.next.index, im.next.digest
	switch {
	case segment == 0:
		h.successor += private
	case segment == private+1:
		h.sequence, h.predecessor = 2, im.salt(0)
	default:
		h.sequence, h.predecessor = uint64(segment-private)+1, im.salt(segment-1)
	}
	return h
}

// superblock fills page 0 or 1. Both superblocks are of the one checkpoint, so the file can be opened if one of
// them is damaged.
func (im *Image) superblock(page []byte, number uint64) {
	s := &im.shape
	first := uint64(imageGroup + 1)
	at := Position{Segment: uint32(s.checkpoint / s.size), Page: uint32(s.checkpoint % s.size), Group: first}
	at.Check = uint32(im.salt(at.Segment))
	sb := superblock{
		segmentPages: uint32(s.size), incompatible: featureEven | featureLogged | im.features, uuid: im.uuid, number: number,
		run: at, runFirst: first, runLast: first + s.parts - 1, start: at,
	}
	sb.put(page)
}

// Large writes a large value of the given number of bytes, read from r, and returns its extents. key is as in
// ImagePlan.Large.
func (im *Image) Large(r io.Reader, bytes, key int64) (extents []Extent, err error) {
	err = im.extents.each(bytes, maxExtents(im.shape.size, key), func(a Addr, n uint32) error {
		x := Extent{Addr: a, Bytes: n}
		if err := im.upTo(a); err != nil {
			return err
		}
		im.mark(a, uint64(x.Pages()))
		for left := int(n); left > 0; left -= PageSize {
			page, err := im.room()
			if err != nil {
				return err
			}
			page = page[:min(left, PageSize)]
			if _, err := io.ReadFull(r, page); err != nil {
				return err
			}
			x.CRC = crc32.Update(x.CRC, castagnoli, page)
		}
		extents = append(extents, x)
		return nil
	})
	return extents, err
}

// page appends a page with a mux area to imageGroup. The caller adds the body and the checksum.
func (im *Image) page(a Addr, kind Kind, name PageID, pages uint64) ([]byte, error) {
	im.next.index = im.index
	if err := im.upTo(a); err != nil {
		return nil, err
	}
	page, err := im.room()
	if err != nil {
		return nil, err
	}
	m := mux{kind: kind, flags: uint8(FlushGroup) << groupKindAt, lag: lagUnknown, name: name, group: imageGroup, pages: im.index}
	m.put(page)
	im.index += uint32(pages)
	im.mark(a, pages)
	return page, nil
}

// mark records that pages are live.
func (im *Image) mark(a Addr, pages uint64) {
	for ; pages > 0; a, pages = a+1, pages-1 {
		l := &im.live[a/im.shape.size]
		if *l == nil {
			*l = make([]uint64, (im.shape.size+63)/64)
		}
		o := a % im.shape.size
		(*l)[o/64] |= 1 << (o % 64)
	}
}

// Tree appends a page of the tree. name is the page's name, 0 for its own address. It returns the page's
// address and its body, which the caller fills before the next call.
func (im *Image) Tree(name PageID) (a Addr, body []byte, err error) {
	a = im.tree.take(1)
	if name == 0 {
		name = a
	}
	page, err := im.page(a, KindTree, name, 1)
	if err != nil {
		return 0, nil, err
	}
	im.open = true
	return a, page[MuxSize:], nil
}

// Run writes a value run and returns its address, which is its name. The payload is the key, if the key is
// long, and the value.
func (im *Image) Run(key, value []byte) (Addr, error) { return im.run(runValue, key, value) }

// List writes the run that lists the extents of a large value, after the key if the key is long.
func (im *Image) List(key []byte, extents []Extent) (Addr, error) {
	return im.run(runList, key, putExtents(extents))
}

func (im *Image) run(form uint32, key, value []byte) (Addr, error) {
	bytes := int64(len(key) + len(value))
	if bytes > maxRun(im.shape.size) {
		return 0, fmt.Errorf("%w: a run of %d bytes", ErrImage, bytes)
	}
	pages := uint64(RunPages(bytes))
	a := im.tree.take(pages)
	page, err := im.page(a, KindRun, a, pages)
	if err != nil {
		return 0, err
	}
	crc := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	putRunHeader(page, bytes, crc, form)
	fill := func(to []byte) {
		n := copy(to, key)
		key = key[n:]
		value = value[copy(to[n:], value):]
	}
	fill(page[runPayloadAt:])
	im.sum(page, a)
	for range pages - 1 {
		if page, err = im.room(); err != nil {
			return 0, err
		}
		fill(page)
	}
	return a, nil
}

// Finish writes the checkpoint with the given table, and the rest of the file.
func (im *Image) Finish(table []byte) error {
	if im.tree.at != im.shape.end || len(table) != im.table {
		return fmt.Errorf("%w: it ends at page %d instead of %d, with a table of %d bytes instead of %d", ErrImage, im.tree.at, im.shape.end, len(table), im.table)
	}
	stream := im.checkpoint(table)
	first := uint64(imageGroup + 1)
	im.next = log{group: first}
	for part := range im.shape.parts {
		n := min(len(stream), partPages*BodySize)
		if err := im.part(first+part, first, stream[:n]); err != nil {
			return err
		}
		stream = stream[n:]
	}
	if len(stream) != 0 || im.tree.at != im.shape.behind {
		return fmt.Errorf("%w: its checkpoint ends at page %d instead of %d", ErrImage, im.tree.at, im.shape.behind)
	}
	if err := im.upTo(im.shape.pages); err != nil {
		return err
	}
	return im.flush()
}

// checkpoint returns the stream of the checkpoint.
func (im *Image) checkpoint(table []byte) []byte {
	s := &im.shape
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(len(table)))
	b = append(le.AppendUint64(b, 0), table...)
	segments := (s.behind + s.size - 1) / s.size
	b = le.AppendUint32(b, uint32(segments))
	for n := range segments {
		h := im.header(uint32(n))
		live, written := im.live[n], uint64(imageGroup)
		if (n+1)*s.size > s.checkpoint {
			written += s.parts
		}
		e := space.Entry{State: space.InUse, Salt: h.salt, Sequence: h.sequence, Written: written, Live: live}
		b = e.Append(b)
	}
	le.PutUint64(b[8:], uint64(len(b)-streamHeader-len(table)))
	return b
}

// part writes one part of the checkpoint as a group.
func (im *Image) part(group, first uint64, stream []byte) error {
	pages := (len(stream) + BodySize - 1) / BodySize
	for i := range pages {
		a := im.tree.take(1)
		im.next.group, im.next.index = group, uint32(i)
		if err := im.upTo(a); err != nil {
			return err
		}
		page, err := im.room()
		if err != nil {
			return err
		}
		m := mux{kind: KindCheckpoint, flags: uint8(CheckpointGroup) << groupKindAt, lag: lagUnknown, group: group, pages: uint32(i), digest: im.next.digest}
		if i == pages-1 {
			m.flags, m.pages, m.count = m.flags|flagLast, uint32(pages), first
		}
		m.put(page)
		stream = stream[copy(page[MuxSize:], stream):]
		im.next.digest = chain(im.next.digest, im.sum(page, a))
	}
	return nil
}
