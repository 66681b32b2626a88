// Package ramp is the client of a RAMP table: several keys are written, or read, in one atomic transaction, over
// partitions that do not wait for each other.
//
//	c, err := ramp.Dial(ctx, []string{"shm:/run/flashdbm/node.sock"}, nil)
//	_, err = c.PutAll(ctx, []ramp.Pair{{Key: a, Value: x}, {Key: b, Value: y}})
//	values, err := c.GetAll(ctx, [][]byte{a, b})
//
// GetAll sees all of a PutAll or nothing of it (read atomic isolation), and every PutAll that was acknowledged before
// it began. It does not see the whole table at one moment. Two PutAll of the same keys both take effect, the one with
// the greater timestamp last: docs/ramp.md explains the consequences.
//
// # Algorithm
//
// PutAll sends PREPARE to all partitions, awaits all answers, and sends COMMIT. GetAll asks for the newest committed
// version of each key, and for the information in the versions about the other keys of their transactions. If a
// version says that its transaction wrote another of the requested keys, and the version of that key is older,
// GetAll asks for that key's version by the timestamp. Usually no version is older, so a read takes one round.
//
// If GetAll knows from earlier calls where a value is, it Reads it from the partition's memory without the
// partition's help (GET*). Such a copy is valid if
//
//  1. the partition's tenure lasts when the last answer of the round has come: otherwise the memory may be that of a
//     life that had ended, while other answers are of the next life, which may lack the transaction that the copy
//     belongs to (memory and async mode);
//  2. the copy is whole, committed and of the key, as its guardian proves;
//
// otherwise it is Read up to twice more, and then requested by message. A copy needs no other proof: a slot holds
// one whole committed version, and the repair by message works in the same way for versions that were Read and for
// versions from messages.
//
// # Invariants of the client
//
//  3. COMMIT is sent when all partitions have prepared the transaction.
//  4. ABORT is sent only if a partition has refused the transaction. A call that ends before its outcome is known
//     leaves the transaction to the partitions, and returns ErrUnknownOutcome.
//  5. A timestamp is used for one transaction only, and is above all timestamps that the client has seen in refusals.
//  6. The answers that a write relies on are from the lives that its partitions had when it began. If a new life has
//     begun since, the prepared versions may be lost (memory and async mode): the write is left to the partitions. A
//     read starts again if the term has changed since.
//  7. If partitions have replicas, a life has many terms, and prepared versions outlive a term: the next primary has
//     them. So an answer to PREPARE counts in any term of the life, and COMMIT goes to the successor, which commits
//     the transaction, has committed it, or has committed and forgotten it: no partition aborts a transaction that
//     all have prepared.
//  8. Keys and values are the caller's memory: once a call has ended, nothing of it is sent for the first time or
//     again.
//  9. A partition with replicas that owes an answer for two seconds, and sends nothing else, is asked over another
//     connection, at the node that serves it: a stopped process does not end its connections.
//  10. If the second round finds no version of a key by one of the transactions, the result is the first round's
//     state of the key. But if the partition may have forgotten a version, or a remove of the key, the read starts
//     again. RAMP-Small's first round has no values, so its own version has to be found.
package ramp
