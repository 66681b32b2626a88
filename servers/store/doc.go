// Package store keeps what a shard has decided in a flashdbm file, behind the shard's back: the shard's thread never waits for the file.
//
// Four threads work on it, each a step function that a goroutine drives, or a simulator:
//
//	committer  applies entries, in the order of their numbers, as transactions that read nothing, so none ever conflicts
//	syncer     n := applied; Sync; durable = n; wake: a group commit for all entries that were applied when the sync began
//	fetcher    looks up keys that the shard does not have in memory
//	loader     reads ranges of hashes, to fill the memory after a start, and for scans
//
// If nobody waits for the file, the committer gathers entries for some milliseconds. If clients do, a sync covers a round of them (see
// round): the syncer applies the entries of the round itself, as between the end of a sync and the next one each hand-over from one thread
// to another costs a wake-up. The committer then applies only what has become much beside a sync.
//
// A record's key is 1 | hash of the key, big-endian | key, so a range of the circle is a range of records. Its value is
//
//	offset  size  field
//	0       8     version
//	8       8     expiry: milliseconds since 1970, 0 if there is none
//	16      2     flags of the item
//	18            value
//
// Record 0, whose key is the byte 0, says what the file has, and what versions may have been given out:
//
//	offset  size  field
//	0       1     1, the version of this layout
//	1       8     term: how many times a shard has served from the file
//	9       8     seq: number of the newest entry that is in the file
//	17      8     base: version = seq + base
//
// All integers are little-endian but the hash.
//
// Invariants:
//
//  1. Record 0 is written in the transaction of the entries that it counts. So the file always has the entries 1 to seq and nothing of
//     any other, after a crash too, as a flashdbm file is what it was after some commit.
//  2. durable <= applied <= appended. durable is set from what applied was before the sync began: what is applied while the sync
//     runs may or may not be synced.
//  3. An entry stays in the queue until a transaction with it has committed. If the file is full, the entry is tried again, as it has been
//     acknowledged; meanwhile Full tells the shard to take no more.
//  4. One thread at a time applies: the one that holds applying.
//  5. In sync mode the syncer runs, or waits until a time, as long as durable < appended. Append kicks it for the first entry behind durable: it
//     stores appended and then reads durable, the syncer stores durable and then reads appended, so one of them sees the other.
//  6. Open syncs record 0 with a new term and a higher base before it returns: no version that a lost entry had is ever given out again.
//
// Crash cases. Before the transaction: the entry is lost, which memory and async mode allow, and sync mode has not acknowledged it. Between
// transaction and sync: lost or kept, with all before it. After the sync: kept.
package store
