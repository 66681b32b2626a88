// Package btree is the B+tree of the store: the codec of its nodes, search, cursors and the application of sorted
// batches. It knows nothing of the log, of transactions or of locks: it gets and changes pages through the
// interfaces [Pager] and [Editor].
//
// # Pages and versions
//
// A [Node] is a read-only view of one tree page. It is either a page image, 4096 bytes that belong to the caller
// (for example in a read-only mapping of the file), or a version in memory made by [Apply]. A version never
// changes; a change makes a new version, and readers of the old one keep it. Versions of a leaf share their
// cells (see heap.go), so changing one record of a leaf copies the leaf's directory, not the page.
//
// # Records
//
// Keys are any bytes, 0 to [MaxKey] of them, in lexicographic order; values are 0 to [MaxValue] bytes. A record for
// which [FitsInline] holds is stored in its leaf. Otherwise the leaf holds a [Ref] to a value that the caller has
// written elsewhere. A key of more than [MaxInlineKey] bytes is a long key: its first MaxInlineKey bytes are in the
// leaf, and the whole key is in a run, before the value.
//
// # Concurrency
//
// Any number of goroutines may read, each its own snapshot, without locks and without allocating. Apply, Cut, Splice,
// Repack, Spread, Node.Release, Node.WithChildren, Node.Own, Node.Share, Node.Rebase and all methods of [Memory]
// are for one goroutine at a time, the writer. The writer publishes a version to readers by an atomic store of its
// own, and calls Release when no reader can reach the version any more. Slices returned by a Node, a Cell or a
// Cursor are read-only and live as long as the version they come from.
package btree
