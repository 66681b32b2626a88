// Package commit has the parts of the commit pipeline that know neither the log nor the tree: how a transaction
// finds a commit that it conflicts with ([LastWrites]), which Seqs are durable once a group is ([Marks]), and how
// transactions wait for each other ([Waiters], [Gate]). Package mvcc uses them, in batch.go and commit.go.
//
// A Seq is the number of a batch of commits; Seqs ascend. Methods for the leader are called by one goroutine at a
// time, the one that settles batches.
package commit
