// Package mvcc runs transactions over the pages of one file: snapshots, write sets, conflict rules, the commit
// pipeline, recovery and background work.
//
// A transaction (Tx) reads the tree and the memtables as of a Seq, the number of a batch of commits, and its own
// write set over them. To commit, it is resolved without a lock: its committer looks for newer commits that wrote its
// keys, and pushes the write set to the commit list. The goroutine that gets the token becomes the leader: it drains
// the list into a batch with one Seq, logs the batch, makes it visible and syncs the log (see batch.go).
//
// Two watermarks hold the Seqs of batches. applied is the one at which updates begin; durable is the newest batch
// that survives a power cut. A View begins at durable in Durable mode. In other modes, and beside a
// writer, it begins at applied.
//
// # Concurrency
//
// Any number of goroutines may use an Engine; one goroutine at a time may use a Tx. The order of locks is at Engine.
// Each field says what guards it; most fields belong to the holder of the token.
//
// # Failure
//
// An error while a batch is logged, merged or synced poisons the store: every commit that waits fails, and every
// later one. In Durable mode no View sees the failed batch. Reading what is durable goes on.
package mvcc
