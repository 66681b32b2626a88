// Package replica keeps copies of a log of entries on several nodes: HydraDB's log in the memory of secondaries, which the primary Writes
// one-sidedly. It knows nothing of what the entries say. A shard is the state machine behind it.
//
// # Words
//
//	term     number of a reign over a shard; a later reign has a higher one
//	primary  the member that reigns: it numbers the entries and brings them to the secondaries
//	set      the members that must have an entry before the entry is committed; it stands with the term in the record of the shard
//	grant    a secondary's promise to serve no later term until a time that the primary counts from when it asked
//	tenure   the time until the first grant of the set ends
//	stop     the order to a member to follow nobody of a term or below
//
// The record (shards/N in package cluster) changes by compare-and-set alone. What a process knows of the record may be old. Every rule below
// holds whatever it knows.
//
// # The log
//
// A Log has the newest entries in memory that can be Written from, in frames:
//
//	offset  size  field
//	0       4     size of the body in bytes; 0xFFFFFFFF: nothing more up to the end of the lap
//	4       4     0
//	8       8     seq: number of the entry
//	16      8     term in which the entry was made
//	24            body, padded with zeros to a multiple of 8
//	        8     XXH3-64 of all that, with the seq as its seed
//
// All integers are little-endian. A frame has the same position in the log of the primary and in the rings of all secondaries, so one copy
// serves all. Positions count bytes and never wrap; the place is the position modulo the size. A frame lies within one lap.
//
// A secondary reads a frame by its seq, copies it, and then compares the hash. A ring begins as zeros and is used for one connection, so
// nothing in it can look like an entry that was not Written.
//
// # Invariants
//
//  1. A secondary merges entries in the order of seqs, without a hole.
//  2. A ring is fenced and drained before the next ring is offered and before a report: what a completed Write has placed is merged then.
//  3. A place of a ring is Written again only after its last Write has completed and the secondary has merged what was there. Memory of the
//     log is used again only after all Writes from it have completed, and once no member of the set may need it.
//  4. An entry is committed when every counted member has it: placed in its ring (relaxed), merged (strict), or synced (sync). Counted are
//     the members of the record as it is known, and of every change that was proposed and is not settled. Only a change of the record with a
//     higher revision settles proposals: to read the old record again proves nothing.
//  5. A member is counted from before the change that adds it is proposed, and has all that is committed then.
//  6. Tenure ends one second after the primary sent the oldest of the newest asks that the counted members have granted. The time is the
//     primary's own: the ask carries it, the grant returns it. Without a grant of a counted member there is no tenure.
//  7. After a stop a secondary grants, takes and reigns nothing of the term that was stopped, or below it, unless it reads a later record of that term: then the
//     change that its report was for was not made, and cannot be made any more.
//  8. A new primary serves when every counted member has the entries with which the reign began, as committed as its mode asks for, and no
//     earlier than 1.2 s after its own stop, unless the reign was handed over. All grants of the last reign that it has given end before that.
//  9. A member that the log cannot bring forward gets a copy: the ring first, from an entry on; then what the state machine had at that entry
//     or later; then a mark, an entry behind which the copy is whole. Such a member is not in the set, and a part of a copy is never promoted.
//  10. A member's entries are a prefix of the primary's if the primary has the member's newest entry, with the same term.
//  11. A primary proposes the record of another one, which is then marked as handed over, no earlier than 1.2 s after it has passed on tenure for
//     the last time. From then on it tells nothing that it has read, until a record of a higher revision says that it still reigns. So when
//     the record of the next term is there, nobody relies on the tenure of the last one, and no grant counts.
//  12. The heir of a reign is counted when its record is proposed, so it has all that is committed.
//  13. A deposed primary follows the next one with what it has if it had closed before, and has nothing that is not committed: then its entries are a
//     prefix of the next primary's (10), and nobody Reads its memory by its tenure. Else it gets a copy.
//  14. A member that is to leave the set leaves it when as many as are wished for are left.
//  15. What was said to be durable is in the file of every member that is ever in the set, whichever reign has said it: a primary had synced that when its
//     reign began, so who joins has synced as much.
package replica
