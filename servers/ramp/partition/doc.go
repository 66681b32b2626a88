// Package partition is one partition of a RAMP table: a single thread that alone owns some of the keys, their
// versions, and the log of decisions. Clients write several keys of several partitions in one transaction, without
// locks, and read them so that they see all of a transaction or nothing of it (read atomic isolation).
//
// # The life of a write
//
// PREPARE brings versions, which stay invisible. Once all partitions of the transaction have answered, COMMIT makes
// them visible. A key's newest committed version is in its slot, a place of the arena that clients may Read. An
// overtaken version is kept for some seconds for readers that need it.
//
// # Invariants
//
//  1. A client sends COMMIT when all partitions have prepared the transaction. So a visible version is prepared, or
//     committed, at all partitions of its transaction, where a reader finds it by its timestamp.
//  2. A slot's guardian is the hash of one whole committed version, with its key, timestamp and the hashes of its
//     transaction's keys; or it is 0. Slots change in place, and a slot that was given up becomes another key's: a
//     copy is valid only if guardian and key are right.
//  3. The newest committed version of a key is the one with the greatest timestamp: a late COMMIT adds a version that
//     is overtaken already.
//  4. PREPARE is refused if its timestamp is not above that of the key's newest committed version, or if it is more
//     than 10 s from the partition's time. Otherwise a write by a client with a fast clock would hide writes that are
//     acknowledged later. The partition's time is that of its clock, which is never set back and never below the
//     timestamps in the file. Timestamps of clients do not move it.
//  5. A client aborts a transaction only if a partition has refused it. If a transaction has been prepared for a
//     second, the partitions finish it themselves (termination): they ask each other. If one has committed it, all
//     commit. If one has not prepared it, that partition refuses its timestamp from then on, logs that, and the
//     others abort. If all have prepared it, all commit.
//  6. The outcome of a transaction is remembered as long as a client or another partition may ask: a commit until
//     all of its partitions have it (with a file: synced), a refusal for 20 s. The timestamps of forgotten refusals
//     and removes are at the floor or below it, where PREPARE is refused. The same holds for a timestamp that was
//     refused because another client's transaction has it at this partition: that transaction may be forgotten, too.
//  7. A prepared version is never dropped as garbage.
//  8. An overtaken version is dropped 4 s after it was overtaken. A reader that needs it later gets StateGone, and
//     starts again.
//
// With a file, one log for each partition:
//
//  9. In sync mode PREPARE is answered, and reported to other partitions, once it is synced. The COMMIT need not be
//     synced: if all partitions have the PREPARE after a crash, they commit.
//  10. In async mode the file learns of a COMMIT when all partitions have synced the PREPARE. So after the end of the
//     process, if any file has a part of a transaction as committed, no other file lacks its part.
//  11. A transaction that was prepared when the last life ended is finished before its keys are read: the client may
//     have been told that it was committed.
//  12. A version that the file has as prepared is not evicted from memory, nor is the version that it overtakes
//     dropped from the file.
//  13. The table is a cache of the file. A key that is not in memory is looked up in the file before anything is
//     decided about it, and all requests for the key wait for the lookup. A key is evicted only if the file has
//     all decisions about it, and no request relies on it: a waiting request keeps all of its keys, and fails if
//     there is no room for them.
//  14. A new life serves nothing until clients no longer rely on Reads of the last life's memory (1.2 s).
//
// With replicas on other nodes: see Member.
package partition
