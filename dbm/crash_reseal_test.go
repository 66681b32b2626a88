package dbm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// A sealer changes pages of a database and then corrects all checksums and digests, as an attacker would. It
// follows the documented format and does not use the engine's code.
type sealer struct {
	file    []byte
	segment int         // size in bytes
	chain   []int       // headers and pages of the log in order, beginning with the older superblock's checkpoint or scan start
	first   uint32      // digest before the first page of chain
	sealed  map[int]int // all pages with a right checksum, with the headers of their segments
	pages   []int       // the same in order
}

const (
	posSegment, posPage, posGroup, posDigest, posCheck = 0, 4, 8, 16, 20 // of a position
	superRun, superStart                               = 56, 80          // of a superblock
	muxFlags, muxGroup, muxDigest                      = 5, 16, 36
	flagGrowing, growingCRC, growingEnd                = 4, 8, 12
	headerSalt, headerBefore, headerDigest             = 16, 32, 52
	headerSuccessor                                    = 12
	recordRaw, recordCRC                               = 9, 12
	runLength, runCRC, runPayload                      = logstore.MuxSize, logstore.MuxSize + 8, logstore.MuxSize + 16
)

var le = binary.LittleEndian

func (s *sealer) page(a int) []byte { return s.file[a*logstore.PageSize : (a+1)*logstore.PageSize] }

func (s *sealer) headerOf(segment int) int {
	if segment == 0 {
		return 2
	}
	return segment * s.segment / logstore.PageSize
}

func newSealer(file []byte, segmentPages int) *sealer {
	s := &sealer{file: bytes.Clone(file), segment: segmentPages * logstore.PageSize, sealed: map[int]int{}}
	for a := 2; a < len(file)/logstore.PageSize; a++ {
		if h := s.headerOf(a / segmentPages); a != h && validPage(s.page(a), le.Uint64(s.page(h)[headerSalt:]), int64(a)) {
			s.sealed[a] = h
			s.pages = append(s.pages, a)
		}
	}
	s.follow(segmentPages)
	return s
}

// follow walks the log.
func (s *sealer) follow(segmentPages int) {
	var from []byte
	for slot := range 2 {
		for _, at := range []int{superRun, superStart} {
			if p := s.page(slot)[at:]; from == nil || le.Uint64(p[posGroup:]) < le.Uint64(from[posGroup:]) {
				from = p
			}
		}
	}
	segment, at := int(le.Uint32(from[posSegment:])), int(le.Uint32(from[posPage:]))
	s.first = le.Uint32(from[posDigest:])
	s.chain = append(s.chain, s.headerOf(segment))
	for digest := s.first; ; {
		if a := segment*segmentPages + at; at < segmentPages && s.sealed[a] != 0 && le.Uint32(s.page(a)[muxDigest:]) == digest {
			s.chain = append(s.chain, a)
			digest = extend(digest, s.crc(a))
			at += 1 + s.rawPages(a)
			continue
		}
		h := s.page(s.headerOf(segment))
		next := int(le.Uint32(h[headerSuccessor:]))
		if (next+1)*s.segment > len(s.file) {
			return
		}
		n := s.page(s.headerOf(next))
		if le.Uint64(n[headerBefore:]) != le.Uint64(h[headerSalt:]) || le.Uint32(n[headerDigest:]) != digest {
			return
		}
		segment, at = next, s.headerOf(next)-next*segmentPages+1
		s.chain = append(s.chain, s.headerOf(segment))
	}
}

// rawPages returns how many pages without a mux area follow the one at a.
func (s *sealer) rawPages(a int) int {
	switch p := s.page(a); {
	case logstore.Kind(p[4]) == logstore.KindRecord && p[muxFlags]&flagGrowing == 0:
		return int(p[recordRaw])
	case logstore.Kind(p[4]) != logstore.KindRun:
		return 0
	}
	n := runPayload + int(le.Uint64(s.page(a)[runLength:]))
	return (n+logstore.PageSize-1)/logstore.PageSize - 1
}

// extend adds the checksum of a page to a digest.
func extend(digest, crc uint32) uint32 {
	return crc32.Update(digest, castagnoli, le.AppendUint32(nil, crc))
}

// seal corrects the checksums and digests.
func (s *sealer) seal() {
	before := map[int]uint32{} // digests before pages of the chain
	behind := map[int]uint32{} // digests after the last page of a segment
	digest, size := s.first, s.segment/logstore.PageSize
	for _, a := range s.chain {
		before[a], behind[a/size] = digest, digest
		if h, ok := s.sealed[a]; ok {
			s.sealRun(a)
			le.PutUint32(s.page(a)[muxDigest:], digest)
			s.sum(a, h)
			digest = extend(digest, s.crc(a))
			behind[a/size] = digest
			continue
		}
		p := s.page(a)
		if a != s.chain[0] {
			le.PutUint32(p[headerDigest:], digest)
		}
		le.PutUint32(p, crc32.Checksum(p[4:512], castagnoli))
		copy(p[logstore.PageSize/2:], p[:512])
	}
	for a, h := range s.sealed {
		if _, ok := before[a]; !ok {
			s.sealRun(a)
			s.sum(a, h)
		}
	}
	for slot := range 2 {
		p := s.page(slot)
		for _, at := range []int{superRun, superStart} {
			segment, page := int(le.Uint32(p[at+posSegment:])), int(le.Uint32(p[at+posPage:]))
			d, ok := before[segment*size+page]
			if page >= size { // the group begins in the next segment
				d, ok = behind[segment]
			}
			if ok {
				le.PutUint32(p[at+posDigest:], d)
			}
		}
		le.PutUint32(p[508:], crc32.Checksum(p[:508], castagnoli))
	}
}

func (s *sealer) sealRun(a int) {
	p := s.page(a)
	if end := (a + 1 + s.rawPages(a)) * logstore.PageSize; logstore.Kind(p[4]) == logstore.KindRecord && s.rawPages(a) > 0 && end <= len(s.file) {
		le.PutUint32(p[recordCRC:], crc32.Checksum(s.file[(a+1)*logstore.PageSize:end], castagnoli))
	}
	if logstore.Kind(p[4]) != logstore.KindRun {
		return
	}
	from := uint64(a*logstore.PageSize + runPayload)
	if n := le.Uint64(p[runLength:]); n <= uint64(len(s.file))-from {
		le.PutUint32(p[runCRC:], crc32.Checksum(s.file[from:from+n], castagnoli))
	}
}

// sum sets the checksum of a page.
func (s *sealer) sum(a, header int) {
	var b [16]byte
	copy(b[:8], s.page(header)[headerSalt:])
	le.PutUint64(b[8:], uint64(a))
	p := s.page(a)
	crc := crc32.Checksum(b[:], castagnoli)
	if p[muxFlags]&flagGrowing == 0 {
		le.PutUint32(p, crc32.Update(crc, castagnoli, p[4:]))
		return
	}
	end := min(max(int(le.Uint16(p[growingEnd:])), logstore.MuxSize), logstore.PageSize) // if it is out of bounds, there is no right checksum
	for _, part := range [][]byte{p[4:8], p[16:end], p[growingEnd:16]} {
		crc = crc32.Update(crc, castagnoli, part)
	}
	le.PutUint32(p[growingCRC:], crc)
}

// crc returns the checksum stored in a page.
func (s *sealer) crc(a int) uint32 {
	p := s.page(a)
	if p[muxFlags]&flagGrowing != 0 {
		p = p[growingCRC:]
	}
	return le.Uint32(p)
}

// mutate makes some changes and returns a description.
func (s *sealer) mutate(rng *rand.Rand) (what string) {
	for range 1 + rng.IntN(3) {
		var a int
		switch rng.IntN(12) {
		case 0:
			a = rng.IntN(2)
		case 1:
			a = s.chain[rng.IntN(len(s.chain))]
		default:
			a = s.pages[rng.IntN(len(s.pages))]
		}
		p := s.page(a)
		at := 4 + rng.IntN(logstore.PageSize-12)
		switch rng.IntN(4) {
		case 0:
			at = 4 + rng.IntN(logstore.MuxSize)
		case 1:
			at = logstore.MuxSize + rng.IntN(64)
		}
		switch rng.IntN(7) {
		case 0:
			p[at] ^= 1 << rng.IntN(8)
		case 1:
			p[at] = byte(rng.Uint32())
		case 2:
			le.PutUint16(p[at:], oddNumber[uint16](rng, s))
		case 3:
			le.PutUint32(p[at:], oddNumber[uint32](rng, s))
		case 4, 5:
			le.PutUint64(p[at&^7:], oddNumber[uint64](rng, s))
		case 6: // the content of another page
			copy(p[logstore.MuxSize:], s.page(s.pages[rng.IntN(len(s.pages))])[logstore.MuxSize:])
		}
		what += fmt.Sprintf("page %d at %d; ", a, at)
	}
	return what
}

// oddNumber returns a number near a limit, or the address of a page.
func oddNumber[T uint16 | uint32 | uint64](rng *rand.Rand, s *sealer) T {
	limits := []uint64{0, 1, 2, 0x7F, 0xFF, 0xFFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 31, 1 << 63, 1<<63 | 1, 1<<64 - 1,
		logstore.PageSize, uint64(len(s.file) / logstore.PageSize), uint64(len(s.file)/logstore.PageSize) - 1}
	if rng.IntN(2) == 0 {
		return T(limits[rng.IntN(len(limits))])
	}
	return T(s.pages[rng.IntN(len(s.pages))])
}

// reseal tests files that were changed on purpose.
func (s *specimen) reseal(t *testing.T, limit time.Duration) {
	rng := rand.New(rand.NewPCG(*crashFrom, 13))
	plain := newSealer(s.file, int(s.load.segmentPages))
	again := newSealer(s.file, int(s.load.segmentPages))
	again.seal()
	if !bytes.Equal(plain.file, again.file) { // otherwise files would be refused because of their checksums
		t.Fatal("sealing a file that is right changes it")
	}
	s.damage(t, limit, 1<<30, func(int) (bool, string, error) {
		h := *plain
		h.file = slices.Clone(plain.file)
		what := h.mutate(rng)
		h.seal()
		bad := specimen{file: h.file, load: s.load}
		mem := bad.mem(len(h.file))
		defer mem.Release()
		refused, err := s.endure(mem, true)
		if err == nil {
			refused, err = s.endure(mem, false)
		}
		return refused, what, err
	})
}

// endure uses a database whose records may be anything. The results must be consistent with each other unless Check
// reports damage.
func (s *specimen) endure(mem *vfs.Mem, readOnly bool) (refused bool, err error) {
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	o.Store.ReadOnly = readOnly
	return frugal(s.load.memoryLimit+damageMemory, func() (bool, error) {
		db, err := openEngine(mem, crashPath, o)
		if err != nil {
			return true, damageOnly(err)
		}
		defer db.Close()
		records := map[string][]byte{}
		forward, err := scan(db, records)
		damaged := err
		err = db.View(func(tx *Tx) error {
			var back fingerprint
			for k, v := range tx.Backward(nil, nil) {
				back.add(k, v)
			}
			if tx.Err() == nil && damaged == nil && back != forward {
				damaged = fmt.Errorf("%d records forward, %d backward", forward.records, back.records)
			}
			return nil
		})
		if damaged == nil {
			damaged = err
		}
		for k, v := range records {
			if got, err := db.Get([]byte(k)); damaged == nil && (err != nil || !bytes.Equal(got, v)) {
				damaged = fmt.Errorf("Get of %.20q: %w", k, err)
			}
		}
		if err := db.Check(context.Background()); err != nil {
			damaged = nil
			if err := damageOnly(err); err != nil {
				return true, err
			}
		}
		if damaged != nil {
			return false, fmt.Errorf("Check finds nothing, but: %w", damaged)
		}
		if readOnly {
			return false, nil
		}
		for n := range s.load.keys { // writes may fail, but nothing else may happen
			if err := db.Put([]byte(s.load.key(n)), nil); err != nil {
				break
			}
		}
		db.Checkpoint()
		return false, nil
	})
}
