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
// table may be in the file: a request that needs the key's state is parked until the fetcher has looked it up in the
// file.
//
//  9. A removed key is remembered until its remove is synced, so that no fetch or piece that was read before the
//     remove brings the key back.
//  10. While a key is being fetched, or its range loaded, it is not evicted and its remove is not forgotten. So if
//     the table has a state of the key when the fetch arrives, that state is newer, and wins. A piece that waits to
//     be taken (by a walk) counts as being loaded.
//  11. Only items whose entry is synced and whose lease has ended are evicted.
//  12. The file may be ahead of what is committed. If an entry of the key is pending when its fetch arrives, the
//     request waits for that entry, and is then served again.
//  13. complete is set only when a load has covered all hashes, all entries that were decided during the load are
//     shown, and nothing was evicted since the load began. Only then does a key that is not in the table not
//     exist.
//
// # Parts of the circle that move
//
// The nodes agree on which shards share the circle of hashes (circle.Assignment, package cluster). While the
// assignment changes, the primary of each old owner (mover) sends to the primary of each new owner (arrival) the part
// that the new owner should have. The new owner's primary makes its own entries from it, so its secondaries and files
// receive the part like any other entries. A key that changes after it was sent is sent again, each time it changes.
// Then the part is closed for some milliseconds, and the assignment is changed.
//
//  14. A primary serves a hash only if the hash is its shard's as of a view that includes all changes up to the
//     record that made it the primary, and the hash is not in a closed part.
//  15. A part is closed only when no pointer into it is given any more and all its guardians are 0. While a part
//     is closed, no request, expiry or eviction reads or changes any of its keys. Its change of owner is proposed
//     when all decided entries are shown, answered, and committed by the new owner.
//  16. The proposal takes effect only while the records of both shards are those of the view from which it is made,
//     which have the terms of the two reigns. From the first proposal on, the part stays closed until a view shows
//     that the part has another owner, or that no proposal can succeed any more: the new owner has a later term, or
//     another change has begun (Assignment.Change), or the part is no longer to move. A successor of the old owner
//     knows the outcome of its proposals by 14: none succeeds after its record. The alternative is an entry that
//     tells successors about the proposal; it would need the same conditions for the time after them.
//  17. The new owner accepts a part from the primary whose term is in the old owner's record in its view, and only a
//     part that is not its own. It has nothing of the part when the first item comes: it first drops what an earlier
//     attempt has brought, and waits until the drop is committed and in the file. So between the last item and the
//     change of owner only the present primary adds or drops keys of the part, and keys that were removed before a
//     second attempt do not reappear.
//  18. Versions of a key never decrease: an item keeps its version, and the new owner's base is raised above all
//     versions that the old owner may assign, before the first item comes. An entry tells the new owner's members
//     about the base, so that its next primary also begins above these versions; no item would do that for a key
//     that was removed at the old owner.
//  19. The state of a key that is sent is that at the time of sending or later. A key is sent again when an entry of
//     it is shown after the first item was sent. So the state that is sent last for each key is its state when the
//     part was closed. A changed key is not evicted before it is sent, because the file may be behind.
//  20. When a part is closed, all members of the new owner's set have synced everything that was sent more than a
//     second ago: a crash loses no more than a crash of all members of one shard would.
//  21. Answers to writes stay with the shard that has decided them. Clients ask that shard first. It answers that a
//     key has moved only for a number that it has not decided and will never decide, and only within tenure,
//     because a deposed primary does not know what was decided since. A shard without keys is kept as long as
//     clients may ask.
//  22. Content that belongs to another shard is dropped piece by piece, with one entry for each piece. Pieces of the
//     file, or of a copy, that were read before such an entry bring back no key of its range.
package shard
