// Package replica keeps copies of a log of entries on several nodes: HydraDB's log in the memory of secondaries,
// which the primary Writes one-sidedly. It does not interpret the entries. A shard is the state machine that applies the
// log.
//
// # Words
//
//	term     number of a reign over a shard; a later reign has a higher one
//	primary  the member that reigns: it numbers the entries and sends them to the secondaries
//	set      the members that must have an entry before it is committed; the record of the shard has the set and
//	         the term
//	grant a secondary's promise to serve no later term until a time that the primary counts from its ask
//	tenure   the time until the first grant of the set ends
//	stop     the order to a member to follow no primary of a term or below
//
// The record (shards/N in package cluster) changes by compare-and-set only. A process may know an old record. Every
// rule below holds for any record that it may know.
//
// # The log
//
// A Log has the newest entries in memory from which the fabric can Write, in frames:
//
//	offset  size  field
//	0       4     size of the body in bytes; 0xFFFFFFFF: nothing more up to the end of the lap
//	4       4     0
//	8       8     seq: number of the entry
//	16      8     term in which the entry was made
//	24            body, padded with zeros to a multiple of 8
//	        8     XXH3-64 of all that, with the seq as its seed
//
// All integers are little-endian. A frame has the same position in the log of the primary and in the rings of all
// secondaries, so one copy serves all. Positions count bytes and never wrap; the place is the position modulo the
// size. A frame lies within one lap.
//
// A secondary finds a frame by its seq, copies it, and then compares the hash. A ring starts as zeros and is used for
// one connection, so nothing in it can look like an entry unless it was Written.
//
// # Invariants
//
//  1. A secondary merges entries in the order of seqs, without gaps.
//  2. A ring is fenced and drained before the next ring is offered and before a report: the entries of completed
//     Writes are merged by then.
//  3. A place of a ring is Written again only after its last Write has completed and the secondary has merged the old
//     frame. Memory of the log is reused only after all Writes from it have completed, and once no member of the set
//     may need it.
//  4. An entry is committed when every counted member has it: placed in its ring (relaxed), merged (strict), or
//     synced (sync). Counted are the members of the known record, and those of every proposed change whose outcome is
//     not known. Only a record with a higher revision shows the outcome of proposals: reading the old record again
//     proves nothing.
//  5. A member is counted from before the change that adds it is proposed, and has all committed entries then.
//  6. For each counted member take the last ask that it has granted: tenure ends one second after the primary sent
//     the oldest of these asks. The time is the primary's own: the ask carries it, and the grant returns it. If a
//     counted member has granted nothing, there is no tenure.
//  7. After a stop, a secondary neither grants, accepts entries nor reigns in the stopped term or below, unless it
//     reads a later record of that term: then the change for which it has reported was not made, and never can be.
//  8. A new primary serves when every counted member has the entries with which the reign began, committed as its
//     mode requires, and no earlier than 1.2 s after its own stop, unless the reign was handed over. All grants that
//     it gave to the last reign end before that.
//  9. A member that the log cannot bring up to date receives a copy: first a ring, from some entry on; then the state
//     machine's content as of that entry or later; then a mark, the entry with which the copy is whole. Such a member
//     is not in the set, and a partial copy is never promoted.
//  10. A member's entries are a prefix of the primary's if the primary has the member's newest entry, with the same
//     term.
//  11. A primary proposes a record with another primary, which is then marked as handed over, no earlier than 1.2 s
//     after it has last passed on tenure. From then on it answers no reads, until a record of a higher revision says
//     that it still reigns. So once the record of the next term exists, no client relies on the tenure of the last
//     term, and its grants no longer matter.
//  12. The heir of a reign is counted when its record is proposed, so it has all committed entries.
//  13. A deposed primary follows the next one with its present entries if it had closed before, and has only
//     committed entries: then its entries are a prefix of the next primary's (10), and no client Reads its memory by
//     its tenure. Otherwise it receives a copy.
//  14. A member that is to leave the set leaves it when the set has the wished number of other members.
//  15. An entry that was reported durable, in whatever reign, is in the file of every later member of the set: a
//     primary has synced such entries when its reign begins, so a member that joins has synced them, too.
package replica
