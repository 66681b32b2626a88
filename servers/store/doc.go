// Package store writes the entries of a shard to a flashdbm file in the background: the shard's thread never waits
// for the file.
//
// Four threads work on it. Each is a step function that a goroutine, or a simulator, drives:
//
//	committer  applies entries, in the order of their numbers, as transactions that read nothing, so none ever
//	           conflicts
//	syncer     n := applied; Sync; durable = n; wake: a group commit of all entries that were applied when the sync
//	           began
//	fetcher looks up keys that the shard does not have in memory; the device reads the records of all waiting keys at
//	           the same time
//	loader     reads ranges of hashes, to fill the memory after a start, and for scans
//
// If no client waits for the file, the committer gathers entries for some milliseconds. If clients wait, a sync
// covers a round of entries (see round). The syncer then applies the entries of the round itself, because each
// hand-over between threads from the end of one sync to the next costs a wake-up; the committer applies only a large
// backlog that builds up during a sync.
//
// A record's key is 1 | hash of the key, big-endian | key, so a range of the circle is a range of records. Its value
// is
//
//	offset  size  field
//	0       8     version
//	8       8     expiry: milliseconds since 1970, 0 if there is none
//	16      2     flags of the item
//	18            value
//
// Record 0, whose key is the byte 0, says which entries are in the file, and which versions may have been
// assigned:
//
//	offset  size  field
//	0       1     1, the version of this layout
//	1       8     term: how many times a shard has served from the file
//	9       8     seq: number of the newest entry that is in the file
//	17      8     base: version = seq + base
//
// All integers are little-endian but the hash. A replica's record 0 has layout 2: a table of terms follows (see
// State).
//
// Invariants:
//
//  1. Record 0 is written in the transaction of the entries that it counts. So the file always has the entries 1 to
//     seq and no others, also after a crash, because a crash leaves a flashdbm file in the state after some commit.
//  2. durable <= applied <= appended. durable becomes the value of applied before the sync began: entries that are
//     applied while the sync runs may or may not be synced.
//  3. An entry stays in the queue until a transaction with it has committed. If the file is full, the entry is
//     retried, because it has been acknowledged; until it fits, Full tells the shard to accept no more
//     entries.
//  4. One thread at a time applies entries: the one that holds applying.
//  5. In sync mode the syncer runs, or waits until a given time, as long as durable < appended. Append wakes it for
//     the first entry after durable: Append stores appended and then reads durable, the syncer stores durable and
//     then reads appended, so one of them sees the other.
//  6. Open syncs record 0 with a new term and a higher base before it returns: the version of a lost entry is never
//     assigned again.
//
// Crash cases. Before the transaction: the entry is lost; memory and async mode allow that, and sync mode has not
// acknowledged the entry. Between transaction and sync: the entry is lost or kept, and if it is kept, so are all
// entries before it. After the sync: the entry is kept.
package store
