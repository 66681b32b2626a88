// Package writeset holds the writes of one transaction until it commits.
//
// A [Set] has the last put or delete of each key, sorted by key. [Merge] overlays it on a cursor of the
// transaction's snapshot, so that the transaction sees its own writes. By Intersects, Overlaps and Hashes other
// transactions find out whether it conflicts with them.
//
// All sets share a [Budget] of memory. A set that has grown large leaves memory: it is written to private segments
// of the log as a sorted run, called a layer, and continues in memory above it. The layers of a set are its
// [Spill]. When the transaction commits, its group lists the layers in the place of redo records; [MergeLayers]
// returns their records, of each key the newest, to the code that applies or recovers them.
//
// The package does not know transactions or the tree of the database. Of the log it uses only private segments and
// runs. [Arena], which holds the keys and values of a set, is used by other packages, too.
package writeset
