// Package logstore owns the database file: an append-only log of 4 KiB pages kept in reusable segments.
//
// The log is a chain of groups, each one atomic append numbered without gaps. Every page of a group carries a mux area of 40 bytes
// with its checksum, its name and its place in the chain; the mux area of the last page is the group's commit record (section 3.2 of
// the paper, widened). A group counts only if each of its pages continues the chain digest of the page before it, so valid pages of
// a dead past never join a living log.
//
// The file is read through shared read-only mappings and written by pwrite into space allocated before. Two superblocks, written in
// turn, name the newest checkpoint and the place where a scan of the log begins.
//
// A Store consists of parts with state of their own, each of which knows only those before it: disk (the file), mapping, syncer (what is
// durable), growth (reservations that make the file longer, and space that goes back), appender (the log) and reader. Package space has the
// map of the file's space.
//
// # Concurrency
//
// One goroutine at a time appends to the log: Begin, the methods of Group, Checkpoint.WritePart, Rebase. The caller has a lock for that (package
// mvcc). Any goroutine may call Page, Run, Sync, Reserve, Release, what the space map counts, and the statistics.
//
// # Failure
//
// The first failed write or sync poisons the store: later appends and syncs return the same error, wrapped in ErrFailed, and nothing
// is retried (a second fdatasync may report success over lost pages). Reading goes on.
//
// The format is described in docs/format.md.
package logstore
