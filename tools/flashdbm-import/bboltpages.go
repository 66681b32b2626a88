package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	bolt "go.etcd.io/bbolt"
)

// A page of a bbolt file begins with its number in 8 bytes, its flags in 2, the number of its elements in 2, and the number of pages that follow it
// and belong to it in 4. Elements of 16 bytes follow: of a branch page the offset and length of a key, and the number of a page; of a leaf
// page flags, and the offset of a record and the lengths of its key and value. Offsets count from the element. The value of a bucket begins with the
// number of its root in 8 bytes and its sequence; if the root is 0, a leaf page follows.
const (
	boltBranch  = 1
	boltLeaf    = 2
	boltBucket  = 1       // flag of an element in a leaf
	boltElement = 16      // bytes; also of the head of a page, and of a bucket
	boltKey     = 1 << 15 // bytes of the longest key
)

// boltPages follows the pages of a bbolt file.
type boltPages struct {
	file  io.ReaderAt
	size  uint64 // bytes of a page
	count uint64
	seen  []uint64 // a bit for each page
	todo  []boltPage
}

// boltPage is a page of a bucket; last is the name of the last bucket that was found in that bucket.
type boltPage struct {
	no   uint64
	last *[]byte
}

// checkBolt returns an error if a bbolt file has a page in two places, or a bucket twice in a bucket: bbolt's library would follow such
// pages again and again, and needs memory without end for that. Other damage of the file is left to the library to find.
func checkBolt(tx *bolt.Tx, file io.ReaderAt, bytes int64) error {
	b := &boltPages{file: file, size: uint64(tx.DB().Info().PageSize)}
	b.count = uint64(bytes) / b.size
	b.seen = make([]uint64, b.count/64+1)
	b.todo = []boltPage{{uint64(tx.Cursor().Bucket().Root()), new([]byte)}}
	head := make([]byte, b.size)
	for len(b.todo) > 0 {
		p := b.todo[len(b.todo)-1]
		b.todo = b.todo[:len(b.todo)-1]
		if err := b.page(p, head); err != nil {
			return fmt.Errorf("page %d of a damaged file: %w", p.no, err)
		}
	}
	return nil
}

// page looks at a page; buf is memory for one.
func (b *boltPages) page(p boltPage, buf []byte) error {
	if p.no < 2 || p.no >= b.count {
		return fmt.Errorf("the file has %d pages", b.count)
	}
	at := int64(p.no * b.size)
	if _, err := b.file.ReadAt(buf, at); err != nil {
		return err
	}
	flags, n, more := binary.NativeEndian.Uint16(buf[8:]), int(binary.NativeEndian.Uint16(buf[10:])), uint64(binary.NativeEndian.Uint32(buf[12:]))
	if more >= b.count-p.no {
		return fmt.Errorf("%d pages should follow, and the file has %d", more, b.count)
	}
	for no := p.no; no <= p.no+more; no++ {
		if b.seen[no/64]>>(no%64)&1 != 0 {
			return errors.New("it is in two places")
		}
		b.seen[no/64] |= 1 << (no % 64)
	}
	if boltElement*(n+1) > len(buf) {
		buf = make([]byte, boltElement*(n+1))
		if _, err := b.file.ReadAt(buf, at); err != nil {
			return err
		}
	}
	switch flags {
	case boltBranch:
		for i := n; i > 0; i-- { // the last one first: the pages are looked at in order
			b.todo = append(b.todo, boltPage{binary.NativeEndian.Uint64(buf[i*boltElement+8:]), p.last})
		}
	case boltLeaf:
		for i := 1; i <= n; i++ {
			e := buf[i*boltElement:]
			if binary.NativeEndian.Uint32(e)&boltBucket == 0 {
				continue
			}
			if err := b.bucket(p.last, e, at+int64(i*boltElement)); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("its flags are %#x", flags)
	}
	return nil
}

// bucket looks at a bucket; e is its element, which stands at the given place of the file.
func (b *boltPages) bucket(last *[]byte, e []byte, at int64) error {
	pos, key, value := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
	if key > boltKey || value < boltElement || uint64(value) > b.size {
		return fmt.Errorf("a bucket of %d and %d bytes", key, value)
	}
	record := make([]byte, key+value)
	if _, err := b.file.ReadAt(record, at+int64(pos)); err != nil {
		return err
	}
	name, in := record[:key], record[key:]
	if *last != nil && bytes.Compare(*last, name) >= 0 {
		return fmt.Errorf("bucket %q follows bucket %q", name, *last)
	}
	*last = append([]byte{}, name...)
	if root := binary.NativeEndian.Uint64(in); root != 0 {
		b.todo = append(b.todo, boltPage{root, new([]byte)})
		return nil
	}
	if in = in[boltElement:]; len(in) < boltElement {
		return fmt.Errorf("bucket %q has no page", name)
	}
	for i := range int(binary.NativeEndian.Uint16(in[10:])) {
		if from := boltElement * (i + 1); from+boltElement > len(in) || binary.NativeEndian.Uint32(in[from:])&boltBucket != 0 {
			return fmt.Errorf("bucket %q has a bucket in its only page, or an element outside of it", name)
		}
	}
	return nil
}
