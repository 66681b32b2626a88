// Package ramp is the client of a RAMP table: several keys are written, or read, in one atomic transaction, over partitions that do not wait
// for each other.
//
//	c, err := ramp.Dial(ctx, []string{"shm:/run/flashdbm/node.sock"}, nil)
//	_, err = c.PutAll(ctx, []ramp.Pair{{Key: a, Value: x}, {Key: b, Value: y}})
//	values, err := c.GetAll(ctx, [][]byte{a, b})
//
// GetAll sees all of a PutAll or nothing of it (read atomic isolation), and what was acknowledged before it began. It does not see one
// moment of the whole table, and two PutAll of the same keys both happen, the one with the greater timestamp last: docs/ramp.md says what
// follows from that.
//
// # How
//
// PutAll sends PREPARE to all partitions, awaits all answers, and sends COMMIT. GetAll asks for the newest committed version of each key, with
// what the versions say of the other keys of their transactions. Where a version says that its transaction wrote another of the keys, and the
// version of that key is older, GetAll asks for it by its timestamp. In the usual case there is none, so reading takes one round.
//
// GetAll Reads values from the partitions' memory without their help, where it has Read or asked before (GET*). Such a copy counts if
//
//  1. the partition's tenure lasts when the last answer of the round has come: else the memory may be that of a life that had ended, while other
//     answers are of the next life, which may lack what the copy is a part of (memory and async mode);
//  2. the copy is whole, committed and of the key, as its guardian proves;
//
// else it is Read twice more, and then asked for. A copy needs no other proof: a slot is one committed version whole, and the repair by message
// does not care where the versions of the first round are from.
//
// # Invariants of the client
//
//  3. COMMIT is sent when all partitions have prepared the transaction.
//  4. ABORT is sent only if a partition has refused the transaction. A call that ends before its outcome is known leaves the transaction to the
//     partitions, and returns ErrUnknownOutcome.
//  5. A timestamp is used for one transaction only, and is above all that the client has seen in refusals.
//  6. What a write is told by its partitions is from the lives that they had when it began. With another life in between what was prepared may be lost (memory
//     and async mode): the write is left to the partitions. A read begins anew with another term in between.
//  7. Where partitions have replicas, a life has many terms, and what a partition has prepared outlives them: whoever reigns next has it. So an answer to PREPARE
//     counts in any term of the life, and COMMIT goes to the successor, which commits it, has committed it, or has forgotten that it did: what all have prepared
//     nobody aborts.
//  8. Keys and values are the caller's memory: of a call that has ended nothing is sent that was not sent before, and nothing again.
//  9. A partition with replicas that owes an answer for two seconds, and tells nothing else, is asked over another connection, at whoever serves it: a process that was
//     stopped ends no connection.
//  10. Where the second round finds no version of a key that one of the transactions wrote, what the first round has told of the key counts; unless the partition may have
//     forgotten a version, or that the key was removed: then the read begins anew. RAMP-Small's first round has no values, so its own version has to be found.
package ramp
