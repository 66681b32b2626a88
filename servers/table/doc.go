// Package table is the compact hash table of a shard: from the hash of a key to the place of its item.
//
// A bucket is one cache line of 64 bytes: a head and seven slots. A lookup that finds its key usually reads one line
// of the table, and the item.
//
//	word  bits   field
//	0     56-62  filter: which of the seven slots are taken
//	0     0-55   link: number of the next overflow bucket, plus 1; 0 if there is none
//	1-7   48-63  signature: the low 16 bits of the hash
//	1-7   0-47   place
//
// Buckets are numbered by the high bits of the hash, mirrored: bucket 0 has all hashes; then buckets 0 and 1 have the
// hashes that begin with the bits 0 and 1; and so on. The table doubles in steps (linear hashing): an insert that
// finds the table too full splits one bucket, always the next one, so no operation visits more than a few buckets. A
// bucket has a contiguous range of hashes. So Scan visits all entries in ranges of rising hash, and the position of a
// scan is a hash, which stays valid while the table grows.
//
// Invariants:
//
//  1. An entry is in the chain of the bucket to which its hash belongs.
//  2. All buckets of a chain except the last are full, and no overflow bucket is empty: Remove fills its gap from the
//     chain's end.
//  3. An overflow bucket is in one chain or in the free list.
//
// One goroutine uses a Table.
package table
