// Package guard defines the layout of an item, and the proof that a copy of one is whole and current.
//
// An item is a key and its value at a place in a shard's arena. Its owner builds it once; peers Read it without the
// owner's help. The provider moves the words of a Read in any order while the owner works, so a copy may mix words of
// several moments. The last word of an item, the guardian, distinguishes a good copy from a mixed one:
//
//	offset       size  field
//	0            2     length of the key, bytes
//	2            2     flags
//	4            4     length of the value, bytes
//	8            8     version, never 0
//	16           8     expiry: milliseconds since 1970, 0 if there is none
//	24           klen  key
//	24+klen      vlen  value
//	...          0-7   zeros, up to the next multiple of 8
//	Size-8       8     guardian
//
// All integers are little-endian. An item begins at a multiple of eight bytes.
//
// Invariants:
//
//  1. The guardian is the XXH3-64 of all bytes before it (1 where that is 0) while the item is its key's current
//     value, and 0 at all other times: while it is built, before it is committed, and from the moment at which its
//     successor is about to be shown.
//  2. Between Build and the reuse of the place, nothing of an item changes except its guardian.
//  3. The guardian is written as one aligned word, so a Read finds 0 or the hash.
//
// Hence a copy whose guardian is the hash of the copy's other bytes is one whole item, which was current when its
// guardian was read. That moment lies within the Read, so the value was current within the operation. A copy that
// mixes two items passes with probability 2^-64, unless a value was forged to look like an item; against forgery,
// places are not reused during a lease.
package guard
