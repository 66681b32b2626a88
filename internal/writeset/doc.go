// Package writeset holds the writes of one transaction until it commits.
//
// A [Set] has the last put or delete of each key, sorted by key. [Merge] overlays it on a cursor of the
// transaction's snapshot, so that the transaction sees its own writes. Other transactions find out with
// Intersects, Overlaps and Hashes whether it conflicts with them.
//
// All sets share a [Budget] of memory. A set that has grown large is spilled: its entries are written to private
// segments of the log as a sorted run, called a layer, and later writes collect in memory again. The layers of a
// set are its [Spill]. When the transaction commits, its group lists the layers instead of redo records;
// [MergeLayers] returns the newest record of each key to the code that applies or recovers them.
//
// The package knows nothing of transactions or of the tree of the database. Of the log it uses only private
// segments and runs. [Arena], which holds the keys and values of a set, is used by other packages, too.
package writeset
