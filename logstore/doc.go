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
// # Concurrency
//
// One goroutine at a time appends, the one that holds the caller's lock for that (package mvcc): Begin, Group's methods, Checkpoint.WritePart, Rebase.
// Page, Run, Sync, Reserve, Release, the live and name counters and the statistics may be called by any goroutine.
//
// # Failure
//
// The first failed write or sync poisons the store: later appends and syncs return the same error, wrapped in ErrFailed, and nothing
// is retried (a second fdatasync may report success over lost pages). Reading goes on.
//
// The format is described in docs/format.md.
package logstore
