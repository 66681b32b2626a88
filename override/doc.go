// Package override owns the names of pages: the translation table that leads from a name to the newest image of a page, the set of
// pages changed and not yet written, and the one page writer (flush, fold) that plans what to write.
//
// A parent knows a child by name, not by place. When a page changes, its new image is logged under the same name as an override page
// and the table leads there; the parent is not rewritten (section 3.1 of the paper). A fold later rewrites a parent to name its
// children by their present addresses, and their entries retire.
//
// # Versions
//
// Each entry of the table holds the versions of its page, newest first, stamped with the Seq of the batch that made them. A reader at
// Seq s uses the newest version not above s, so a snapshot is a number. Versions are in memory until a flush, or a page group, has
// written them; then they are addresses.
//
// # Concurrency
//
// The baton holder alone changes the table, through a Batch, a Fold, a Flush or a PageGroup. Readers walk the table at any time
// without a lock: links and versions are published by atomic stores, never changed afterwards, and unlinked ones keep leading back
// into the chain. What readers may still be looking at is released only when the registry of snapshots shows that nobody can be.
package override
