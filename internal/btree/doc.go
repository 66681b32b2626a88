// Package btree is the B+tree of the store: the codec of its nodes, search, cursors and the application of sorted batches. It knows
// neither log nor transactions nor locks: pages come and go through the small interfaces [Pager] and [Editor].
//
// # Pages and versions
//
// A [Node] is a read-only view of one tree page. It is either a page image, 4096 bytes that somebody else keeps (say, a read-only
// mapping of the file), or a version in memory made by [Apply]. Versions never change once made; a change makes a new version and
// leaves the old one to its readers. Versions of a leaf share their cells (see heap.go), so changing one record of a leaf costs a
// copy of its directory, not of the page.
//
// # Records
//
// Keys are any bytes, 0 to [MaxKey] of them, in lexicographic order; values are 0 to [MaxValue] bytes. A record for which
// [FitsInline] holds is stored in its leaf. Otherwise the leaf holds a [Ref] to a value run, which the caller has written; a key of
// more than [MaxInlineKey] bytes (a long key) is in the run too, before the value, and its first MaxInlineKey bytes are in the leaf.
//
// # Concurrency
//
// Any number of goroutines may read, each its own snapshot, without locks and without allocating. One goroutine at a time, the
// writer, calls Apply, Node.Release, Node.WithChildren, Node.Own and everything of [Memory]. The writer publishes a version to readers
// by an atomic store of its own; it calls Release when no reader can reach the version any more. Slices returned by a Node, a Cell or a
// Cursor are read-only and live as long as the version they come from.
package btree
