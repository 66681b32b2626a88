package space

// A bitmap is a set of the pages of one segment, a bit for each page. nil is the empty set.
type bitmap []uint64

func (b bitmap) has(o uint64) bool { return b != nil && b[o/64]>>(o%64)&1 != 0 }
func (b bitmap) set(o uint64)      { b[o/64] |= 1 << (o % 64) }
func (b bitmap) unset(o uint64)    { b[o/64] &^= 1 << (o % 64) }

// eachWord calls f for each word of a segment's bitmap that contains bits of the given pages, with the mask of
// those bits. o is the index in the segment of the first page.
func eachWord(o uint64, pages int64, f func(i, mask uint64)) {
	for end := o + uint64(pages); o < end; {
		n := min(end-o, 64-o%64)
		f(o/64, ^uint64(0)>>(64-n)<<(o%64))
		o += n
	}
}
