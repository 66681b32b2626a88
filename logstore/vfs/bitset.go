package vfs

import "math/bits"

// bitset is a set of small numbers. It grows as needed; a number past its end is not in the set.
type bitset []uint64

func (s bitset) has(i int64) bool {
	return i>>6 < int64(len(s)) && s[i>>6]&(1<<(i&63)) != 0
}

func (s *bitset) add(i int64) {
	for int64(len(*s)) <= i>>6 {
		*s = append(*s, 0)
	}
	(*s)[i>>6] |= 1 << (i & 63)
}

func (s bitset) remove(i int64) {
	if i>>6 < int64(len(s)) {
		s[i>>6] &^= 1 << (i & 63)
	}
}

// cut removes all numbers from end on.
func (s *bitset) cut(end int64) {
	if words := (end + 63) >> 6; words < int64(len(*s)) {
		*s = (*s)[:words]
	}
	if end&63 != 0 && end>>6 < int64(len(*s)) {
		(*s)[end>>6] &= 1<<(end&63) - 1
	}
}

func (s bitset) count() int64 {
	var n int
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return int64(n)
}

// next returns the first number from i on that is in the set (or, if want is false, is not in the set), but at
// most end.
func (s bitset) next(i, end int64, want bool) int64 {
	for i < end {
		if i>>6 >= int64(len(s)) {
			if want {
				return end
			}
			return i
		}
		w := s[i>>6]
		if !want {
			w = ^w
		}
		if w >>= i & 63; w != 0 {
			return min(i+int64(bits.TrailingZeros64(w)), end)
		}
		i = (i | 63) + 1
	}
	return end
}
