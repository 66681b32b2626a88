// Package space is the map of the database file: which pages are live, which segments can be reused, which
// pages are promised to whom, and which space goes back to the file system.
//
// The map does no input or output. Package logstore carries out what the map decides (it allocates, punches and
// cuts the file), and tells the map what the log and the checkpoints do. A Map consists of parts with their own
// state:
//
//	table         the segments and the free list
//	Log           the end of the log, and what its checkpoints need
//	Absent        segments without space: condemned ones, and those given back
//	Readers       snapshots, and the lifetimes of pages that readers see
//	Usage         live pages, nodes and logged values
//	Reuse         which segments can be reused, cleaned or thinned
//	Reservations  pages promised to transactions, and pages held back
//
// One mutex guards all of them. It is a leaf lock. Any goroutine may call any method unless the method says otherwise.
package space
