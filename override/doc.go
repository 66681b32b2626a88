// Package override owns the names of pages: the translation table that leads from a name to the newest image of a page, the set of
// pages changed and not yet written, and the one page writer (flush, fold) that plans what to write.
//
// A parent knows a child by name, not by place. When a page changes, its new image is logged under the same name as an override page
// and the table leads there; the parent is not rewritten (section 3.1 of the paper). A fold later rewrites a parent to name its
// children by their present addresses, and their entries retire.
//
// # Versions
//
// Each entry of the table holds the versions of its page, newest first, stamped with the Seq of the batch that made them; no two of a
// page have the same. A reader at Seq s uses the newest version not above s, so a snapshot is a number. Versions are in memory until a
// flush, or a page group, has written them; then they are addresses.
//
// # The installed tree
//
// What recovery would find without redo is the installed tree: the tree as of the base, a group. It moves in whole steps, by a page
// group or by the last part of a flush, and the space map with it:
//
//   - A page, its place and its name stay installed until the next step whose base covers their end.
//   - A value lives from the group that carries it, wherever the base is, until the flush whose base covers its end.
//   - A page group, which can say nothing of ends, is legal only if none is pending.
//   - The table of a checkpoint has the installed places, and no step falls between it and the space map.
//
// # What keeps a place
//
// A place is born at the Seq of the version that lies there and dies at the Seq of the step that replaced it. Its segment may be used again
// when no reader is from the one to below the other (logstore/space/readers.go). A version that was made and replaced between two neighbouring
// snapshots so keeps nothing. Two things
// keep a segment longer: a name of the table that is an address in it, and a node in memory that has cells in an image there.
//
// # Concurrency
//
// The token holder alone changes the table, through a Batch, a Flush or Reclaim. Readers walk the table at any time without a lock:
// links and versions are published by atomic stores, never changed afterwards, and unlinked ones keep leading back into the chain. What
// readers may still be looking at is released only when the registry of snapshots shows that nobody can be.
//
// An error of a Batch or a Flush leaves the pages half changed; the caller poisons the store. What was published before stays readable.
package override
