// Package logstore owns the database file: an append-only log of 4 KiB pages kept in reusable segments.
//
// The log is a chain of groups; each group is one atomic append, and groups are numbered without gaps. Every page
// of a group has a mux area of 40 bytes with the page's checksum, its name and its place in the chain. The mux area
// of the last page is the group's commit record (section 3.2 of the paper, widened). A group counts only if each of
// its pages continues the chain digest of the page before it. So valid pages that an earlier life of a segment left
// there never become part of the log.
//
// The file is read through shared read-only mappings, and written by pwrite into space that was allocated before.
// Two superblocks, written alternately, name the newest checkpoint and the position where a scan of the log begins.
//
// A Store consists of parts with their own state; each part knows only the parts before it: disk (the file),
// mapping, syncer (what is durable), growth (reservations that make the file longer, and space given back),
// appender (the log) and reader. Package space has the map of the file's space.
//
// # Concurrency
//
// One goroutine at a time appends to the log: it calls Begin, the methods of Group, Checkpoint.WritePart and
// Rebase. The caller has a lock for that (package mvcc). Any goroutine may call Page, Run, Sync, Reserve, Release,
// the counters of the space map, and the statistics.
//
// # Failure
//
// The first failed write or sync poisons the store: later appends and syncs return the same error, wrapped in
// ErrFailed, and nothing is retried (a second fdatasync may report success over lost pages). Reading continues.
//
// The format is described in docs/format.md.
package logstore
