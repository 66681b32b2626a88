// Package arena is the memory of a shard's items: blocks in extents, each of which is one region of the fabric that peers may Read.
//
// An extent is divided into pages, runs of pages form spans, and a span has blocks of one size class. Sizes grow by at most a quarter from
// class to class, so at most a fifth of a block is unused. Blocks of more than half a page's share take whole pages. A span without
// blocks in use gives its pages back to the extent.
//
// A block begins with a prefix of 16 bytes, which only the shard uses:
//
//	offset  size  field
//	0       8     end of the lease, in nanoseconds of the shard's clock; 0: nobody has a pointer
//	8       4     hits: how often the item has been served
//	12      4     marks for the shard's use
//
// A block has three states: free, live (from Alloc to Retire) and dead (from Retire to the end of the lease).
//
// Invariants:
//
//  1. A block is not handed out again before the lease that its prefix showed at Retire is over by the clock that Reap is given.
//  2. The lease of a dead block does not change.
//  3. Every block of a span is in exactly one state; a double Retire or a place that never was is a broken program, and panics.
//
// An Arena belongs to one goroutine; peers' Reads go on beside it.
package arena
