// Package writeset holds what one transaction writes.
//
// A [Set] has the last put or delete of each key, in key order. [Merge] lays it over a cursor of the transaction's snapshot, which is how the
// transaction sees its own writes; Intersects, Overlaps and Hashes are how others see whether theirs conflict with it.
//
// A set that has grown large leaves memory, by a [Budget] that all sets share: it is written as a sorted layer to private segments of the
// log, and goes on in memory on top of that. What has left memory is a [Spill]. When the transaction commits, its group lists the layers
// instead of redo, and [MergeLayers] gives their records, of each key the newest, to whoever applies or recovers them.
//
// The package knows neither transactions nor the tree of the database, and of the log only private segments and their runs. [Arena], in which
// a set has its keys and values, is for others as well.
package writeset
