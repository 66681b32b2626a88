// Package partition is one partition of a RAMP table: a single thread that alone owns some of the keys, their versions, and the log of what
// was decided. Clients write several keys of several partitions in one transaction, without locks, and read them so that they see all
// of a transaction or nothing of it (read atomic isolation).
//
// # The life of a write
//
// PREPARE brings versions, which nobody sees yet. Once all partitions of the transaction have answered, COMMIT shows them. A key's newest
// committed version lies in its slot, a place of the arena that clients may Read. What a newer version has overtaken is kept for some
// seconds for readers that need it.
//
// # Invariants
//
//  1. A client sends COMMIT when all partitions have prepared the transaction. So a version that anybody sees is prepared, or committed,
//     at all partitions of its transaction, where a reader finds it by its timestamp.
//  2. A slot's guardian is the hash of one committed version whole, with its key, timestamp and the hashes of its transaction's keys;
//     or it is 0. Slots change in place, and a slot that was given up becomes another key's: a copy counts only if guardian and
//     key are right.
//  3. The newest committed version of a key is the one with the greatest timestamp: a COMMIT that comes late adds a version that is
//     overtaken already.
//  4. PREPARE is refused if its timestamp is not above that of the key's newest committed version, or if it is more than 10 s from the
//     partition's time. Else a write that was acknowledged later would stay hidden behind a write of a clock that runs fast. The
//     partition's time is its clock's, which is not set back and no lower than what the file has: timestamps of clients do not move it.
//  5. A client aborts a transaction only if a partition has refused it. A transaction that is prepared for a second is finished by the
//     partitions themselves (termination): they ask each other. If one has committed it, all commit. If one has not prepared it, that
//     partition refuses its timestamp from then on, logs that, and the others abort. If all have prepared it, all commit.
//  6. That a transaction was committed, or refused, is remembered as long as anybody may ask: a commit until all of its partitions have it
//     (with a file: synced), a refusal for 20 s. The timestamps of refusals and of removes that were forgotten are at the floor or
//     below it, where PREPARE is refused. So is one that was refused since it is another client's transaction here, which may be forgotten.
//  7. A prepared version is never dropped as garbage.
//  8. An overtaken version is dropped 4 s after it was overtaken. A reader that needs it then is told so, and begins anew.
//
// With a file, one log for each partition:
//
//  9. In sync mode PREPARE is answered, and told to other partitions, once it is synced. The COMMIT need not be: if all partitions have
//     the PREPARE after a crash, they commit.
//  10. In async mode the file learns of a COMMIT when all partitions have synced the PREPARE. So after the end of the process no file has
//     a part of a transaction as committed that another file lacks.
//  11. What was prepared when the last life ended is finished before its keys are read: the client may have been told that it was
//     committed.
//  12. A version that the file has as prepared is not evicted from memory, nor is what it overtakes dropped from the file.
//  13. The table is a cache of the file. A key that is not in memory is asked of the file before anything is decided about it, and all that
//     concerns the key waits for that. A key is evicted only if the file has all that was decided about it, and no request relies on it: a
//     request that waits keeps all of its keys, and fails if there is no room for them.
//  14. A new life serves nothing until clients rely on Reads of the last one's memory no longer (1.2 s).
//
// With replicas on other nodes: see Member.
package partition
