// Package table is the compact hash table of a shard: from the hash of a key to the place of its item.
//
// A bucket is one cache line of 64 bytes: a head, and seven slots. A lookup that finds its key reads one line of the table and the item.
//
//	word  bits   field
//	0     56-62  filter: which of the seven slots are taken
//	0     0-55   link: number of the overflow bucket that follows, plus 1; 0 if none does
//	1-7   48-63  signature: the low 16 bits of the hash
//	1-7   0-47   place
//
// Buckets are numbered by the high bits of the hash, mirrored: bucket 0 has all hashes, then 0 and 1 have those that begin with 0 and 1,
// and so on. The table doubles in steps (linear hashing): an insert that finds the table too full splits one bucket, always the
// next, so no operation takes longer than a few buckets do. As a bucket has a contiguous range of hashes, Scan goes through all entries
// in ranges of rising hash, and a scan's position is a hash, which stays meaningful while the table grows.
//
// Invariants:
//
//  1. An entry is in the chain of the bucket that its hash belongs to.
//  2. All buckets of a chain but the last are full, and an overflow bucket is never empty: a remove fills its gap from the chain's end.
//  3. An overflow bucket is in one chain or in the free list.
//
// A Table belongs to one goroutine.
package table
