// Package mvcc runs transactions over the pages of one file: snapshots, write sets, conflict rules and the commit pipeline.
//
// A transaction (Tx) reads the tree as of a Seq that it has registered, and its own writes before that. To commit it is resolved, without
// a lock: it looks for commits since its snapshot that wrote its keys, and pushes its write set to the commit list. Whoever gets the
// token drains the list into a batch with one Seq, logs the batch, applies it to the tree and syncs (see batch.go).
//
// Two watermarks, both Seqs of batch ends: applied, at which updates begin, and durable, at which views begin in Durable mode.
//
// # Concurrency
//
// An Engine may be used by any number of goroutines, a Tx by one. The order of locks is at Engine; what the token protects is said at
// each field.
//
// # Failure
//
// An error while a batch is logged, applied or synced poisons the store: all who wait fail, nothing of the batch becomes visible, and
// reading what is durable goes on.
package mvcc
