// Package shard is one shard of HydraDB: a single thread that alone owns a table, an arena and the order of all
// changes. It serves the messages of its connections; peers Read its items without its help.
//
// # The sweep
//
// Step polls all connections, then reads the clock, then serves the polled requests. In the same sweep it shows
// committed entries and sends their answers, installs what the file has delivered, and frees dead items whose lease
// has ended.
//
// # The life of a write
//
// A write is decided against the newest state, including entries that are not committed yet. Its item is built where
// no table leads to it. The entry gets the next number (seq) and goes to the store. Once it is committed, in the
// order of seqs, it is shown: the old item's guardian becomes 0, the new one's becomes its hash, the table's slot
// leads to the new item, and the answer is sent.
//
// With one node, committed means decided (memory, async), or synced (sync).
//
// # Invariants
//
//  1. Table and guardians show committed entries only.
//  2. An answer that depends on an entry is sent after that entry has been shown; no answer reveals anything else
//     that is not committed.
//  3. While one item of a key is current, no other item of the key has a guardian other than 0.
//  4. A lease is counted by a clock that was read after its request was polled. So it ends here no earlier than at
//     the client, which counts from the moment at which it sent the request.
//  5. A place is reused only after the item's last lease has ended (package arena).
//  6. A write with a number is applied at most once in the life of the shard, and its answer is kept until the client
//     says that all numbers up to it have been answered. A number that an earlier life may have applied is refused
//     with StatusUnknownOutcome: that is a number below the one that the client's hello named as its next. A client
//     that sends each request once (Greeting.Once) has no numbers: none of its requests is taken for a repetition.
//  7. A new life serves nothing until the tenure that the last life may have passed on to its clients has ended:
//     until then they may Read the memory of a dead process, and rely on it.
//  8. Expiry is an entry like any other, a remove. The answer that finds an item expired waits for that entry.
//
// # The table as a cache of the file
//
// After a start, and when memory is short, the table has a part of the file's records. Then a key that is not in the
// table may be in the file: a request that needs its state is parked until the fetcher has asked the file.
//
//  9. A removed key is remembered until its remove is synced, so that no fetch or piece that was read before brings
//     it back.
//  10. While a key is being fetched, or its range loaded, it is not evicted and its remove is not forgotten. So the
//     table's state, when the fetch arrives, is newer, and wins. A piece that waits to be taken (by a walk) counts
//     as being loaded.
//  11. Only items whose entry is synced and whose lease has ended are evicted.
//  12. The file may be ahead of what is committed. If an entry of the key is pending when its fetch arrives, the
//     request waits for that entry, and is then served again.
//  13. complete is set only when a load has covered all hashes, all entries that were decided meanwhile are shown,
//     and nothing was evicted since the load began. Only then does a key that is not in the table not exist.
//
// # Parts of the circle that move
//
// The nodes agree on which shards share the circle of hashes (circle.Assignment, package cluster). While the
// assignment changes, the primary of each old owner (mover) sends the part that a new owner should have to that
// owner's primary (arrival), which makes entries of its own from it: so the new owner's secondaries and files receive
// the part as they receive everything. Keys that change meanwhile are sent again, each time they change. Then the
// part is closed, for milliseconds, and the assignment changed.
//
//  14. A primary serves a hash only if the hash is its shard's as of a view that includes all changes up to the
//     record that made it the primary, and the hash is not in a closed part.
//  15. A part is closed only when no pointer into it is given any more and all its guardians are 0. While it is
//     closed nothing of it is read or decided: no request, no expiry, no eviction. Its change of owner is proposed
//     when all decided entries are shown, answered, and committed by the new owner.
//  16. The proposal takes effect only while the records of both shards are those of the view from which it is made,
//     which have the terms of the two reigns. From the first proposal on, the part stays closed until a view shows
//     that it has another owner, or that no proposal can succeed any more: the new owner has a later term, or
//     another change has begun (Assignment.Change), or nothing is to move. A successor of the old owner knows the
//     outcome of its proposals by 14: none succeeds after its record. The alternative, an entry that tells
//     successors of the proposal, would need the same conditions for the time after them.
//  17. The new owner accepts a part from the primary whose term is in the old owner's record in its view, and only a
//     part that is not its own. It has nothing of the part when the first item comes: it first drops what an earlier
//     attempt has brought, and waits until the drop is committed and in the file. So only the present primary adds
//     or drops anything between the last item and the change, and keys removed before a second attempt are gone.
//  18. Versions of a key never decrease: an item keeps its version, and the new owner's base is raised above all
//     versions that the old owner may assign, before the first item comes. An entry tells the new owner's members,
//     so that its next primary begins above them, too: a key that was removed at the old owner has no item to come.
//  19. The state of a key that is sent is its state at that time, or a later one; each key of which an entry is shown
//     after the first item was sent is sent again. So the last state sent of each key is its state when the part was
//     closed. A changed key is not evicted before it is sent, because the file may be behind.
//  20. When a part is closed, all members of the new owner's set have synced everything that was sent until up to a
//     second ago: a crash never loses more than a crash of all members of a shard loses.
//  21. Answers to writes stay with the shard that has decided them: clients ask it first, and it answers that a key
//     has moved only for a number that it has not decided, and which it will not decide later either. It answers so
//     within tenure only: a deposed primary does not know what was decided since. A shard without keys is kept as
//     long as clients may ask.
//  22. What belongs to another shard is dropped, piece by piece, each piece by an entry. Pieces of the file, or of a
//     copy, that were read before such an entry bring nothing of the range back.
package shard
