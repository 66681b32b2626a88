// Package arena manages the memory of a shard's items: blocks in extents. Each extent is one region of the fabric,
// which peers may Read.
//
// An extent is divided into pages. Runs of pages form spans, and a span has blocks of one size class. Each class is
// at most a quarter larger than the one before it, from 64 bytes to half a page, so at most a fifth of a block is
// unused. Larger blocks take whole pages. A span without blocks in use returns its pages to the extent.
//
// A block begins with a prefix of 16 bytes, which only the shard uses:
//
//	offset  size  field
//	0       8     end of the lease, in nanoseconds of the shard's clock; 0: no client has a pointer
//	8       4     hits: how often the item has been served
//	12      4     marks for the shard's use
//
// A block has three states: free, live (from Alloc to Retire) and dead (from Retire to the end of the lease).
//
// Invariants:
//
//  1. A block is not allocated again before the lease in its prefix at the time of Retire has ended by the clock that
//     Reap is given.
//  2. The lease of a dead block does not change.
//  3. Every block of a span is in exactly one state. A second Retire, or a place that does not exist, is a bug in the
//     caller and panics.
//
// One goroutine uses an Arena; peers Read its extents at the same time.
package arena
