// Package shard is one shard of HydraDB: a single thread that alone owns a table, an arena and the order of all changes. It serves the
// messages of its connections; peers Read its items without its help.
//
// # The sweep
//
// Step polls all connections, then reads the clock, then serves what was polled. In between, entries that have been committed are shown and
// their answers given, what the file has brought is installed, and dead items whose lease is over are freed.
//
// # The life of a write
//
// A write is decided against the newest state, entries included that are not committed yet. Its item is built where no table leads to it.
// The entry gets the next number (seq) and goes to the store. Once it is committed, in the order of seqs, it is shown: the old item's
// guardian becomes 0, the new one's becomes its hash, the table's slot leads to the new item, and the answer goes out.
//
// Committed means, with one node: decided (memory, async), or synced (sync).
//
// # Invariants
//
//  1. Table and guardians show committed entries only.
//  2. An answer that rests on an entry leaves after that entry has been shown; an answer of any kind tells of nothing else that is
//     not committed.
//  3. While one item of a key is current, no other item of the key has a guardian other than 0.
//  4. A lease is counted by a clock that was read after the request for it had been polled, so it ends here no earlier than at the client,
//     which counts from the moment at which it sent the request.
//  5. A place is used again only after the item's last lease is over (package arena).
//  6. A write with a number is applied at most once in the life of the shard, and its answer is kept until the client says that all
//     numbers up to it have been answered. What an earlier life may have applied is refused with StatusUnknownOutcome: numbers below the
//     one that the client's hello named as its next. A client that sends each request once (Greeting.Once) has no numbers: nothing that it
//     sends is taken for a repetition.
//  7. A new life serves nothing until the tenure is over that the last one may have passed on to its clients: they may Read memory of a
//     process that is gone, and rely on that until then.
//  8. Expiry is an entry like any other, a remove. The answer that finds an item expired waits for it.
//
// # The table as a cache of the file
//
// After a start, and when memory is short, the table has a part of what the file has. Then a key that is absent from the table is not
// absent: what needs its state is parked until the fetcher has asked the file.
//
//  9. A key removed is remembered until its remove is synced, so that no fetch or piece that was read before brings it back.
//  10. While a key is being fetched, or its range loaded, it is not evicted and its remove not forgotten. So what the table has when the
//     fetch arrives is newer, and wins. A piece that waits to be taken (a walk's), is under way until then.
//  11. Only items whose entry is synced and whose lease is over are evicted.
//  12. The file may be ahead of what is committed. If an entry of the key is pending when its fetch arrives, the request waits for that
//     entry, and looks again.
//  13. complete is set only when a load has covered all hashes, all entries that were decided meanwhile are shown, and nothing was
//     evicted since the load began. Only then an absent key is absent.
//
// # Parts of the circle that move
//
// Which shards share the circle of hashes is a value that the nodes agree on (circle.Assignment, package cluster). While it changes, the primary
// of each old owner (mover) brings the part that a new owner shall have to the primary of that one (arrival), which makes entries of its own of it:
// so the new owner's secondaries and files have it as they have everything. Keys that change meanwhile are brought again, as often as they change.
// Then the part is closed, for milliseconds, and the value changed.
//
//  14. A primary serves a hash only if it is its shard's as of a view that knows all changes up to the record that made it the primary, and is not
//     closed.
//  15. A part is closed when no pointer into it is given any more and all its guardians are 0. While it is closed nothing of it is read, and
//     nothing decided: no request, no expiry, no eviction. Its change of owner is proposed when all that was decided is shown, answered and
//     committed by the new owner.
//  16. The proposal counts only while the records of both shards are those of the view that it is made from, which have the terms of the two reigns.
//     From the first proposal on the part stays closed until a view says that it has another owner, or that no proposal can succeed any more: the
//     new owner has a later term, or another change has begun (Assignment.Change), or nothing is to move. A successor of the old owner knows what has become of them by 14: later than its record none
//     succeeds. The alternative, an entry that tells successors of the proposal, would need the same conditions for the time after them.
//  17. The new owner takes a part from the primary whose term the old owner's record has in its view, and not a part that is its own. It has nothing of
//     the part when the first item comes: it drops what an earlier attempt has brought, when that is committed and in the file. So nobody but the
//     present primary adds or drops anything between the last item and the change, and what was removed before a second attempt is not there.
//  18. Versions of a key never fall: an item keeps its version, and the new owner's base is raised above all that the old owner may give before the
//     first one comes.
//  19. What is brought of a key is what it had when it was brought, or something later; each key of which an entry is shown after the first item was
//     brought is brought again. So the last word on each key is what it had when the part was closed. A key that has changed is not evicted
//     before that, as the file may be behind.
//  20. When a part is closed, all members of the new owner's set have synced what was brought, up to a second ago: more is never lost than in a
//     crash of all members of a shard.
//  21. Answers to writes stay with the shard that has decided: it is asked first, and says that a key has moved only of a number that it has not
//     decided, which it will not decide later either. It says so within tenure only: a primary that was replaced does not know what was decided since. A shard without keys is kept as long as clients may ask.
//  22. What is another shard's is dropped, piece by piece, each piece by an entry. Pieces of the file, or of a copy, that were read before such an
//     entry bring nothing of the range back.
package shard
