// Package override owns the names of pages. It holds the translation table, which maps a name to the newest
// image of a page; the set of pages that were changed and not yet written; and the only writer of tree pages,
// which plans what to write (flush, fold).
//
// A parent knows a child by name, not by address. When a page changes, its new image is logged under the same
// name as an override page, and the table maps the name to the new address; the parent is not rewritten
// (section 3.1 of the paper). A later fold rewrites the parent to name its children by their present addresses,
// and the table entries of those children retire.
//
// Words used throughout: the place of a page is the address of its image; a base is the group up to which a
// written tree has all commits; a part of a flush is one of its groups.
//
// # Versions
//
// Each table entry holds the versions of its page, newest first. A version is stamped with the Seq of the batch
// that made it, and a page has at most one version per Seq. A reader at Seq s uses the newest version whose Seq
// is not above s, so a snapshot is a number. A version is a node in memory until a flush or a page group has
// written it; then it is an address.
//
// # The installed tree
//
// The installed tree is what recovery would find without redo: the tree as of a base. The installed tree
// changes in whole steps, each by a page group or by the last part of a flush, and the space map changes with
// it:
//
//   - A page, its place and its name stay installed until the next step whose base covers their end.
//   - A value is live from the group that carries it, whatever the base, until the flush whose base covers its
//     end.
//   - A page group cannot record that a page, a name or a value ended. It is legal only if no such end is
//     pending.
//   - The table of a checkpoint has the installed places. No step falls between the table and the space map of
//     a checkpoint.
//
// # When a segment can be reused
//
// A place is born at the Seq of the version that lies there, and dies at the Seq of the step that replaced it.
// The segment may be reused when no reader is at a Seq from the birth up to but excluding the death
// (logstore/space/readers.go). So a version made and replaced between two neighbouring snapshots keeps no
// segment. Two other things keep a segment: a name in the table that is an address in the segment, and a node
// in memory whose cells are slices of an image in the segment.
//
// # Concurrency
//
// Only the token holder changes the table, through a Batch, a Flush or Reclaim. Readers walk the table at any
// time without a lock: links and versions are published by atomic stores and do not change afterwards, and an
// unlinked link or version still leads back into its chain. Memory that a reader may still be looking at is
// released only when the registry of snapshots shows that no reader can reach it.
//
// An error of a Batch or a Flush leaves the pages half changed; the caller poisons the store. What was
// published before the error stays readable.
package override
