// Package machine is a node of a RAMP table: partitions, each with a thread, a file and connections of its own, and the listeners through which
// clients come.
//
//	n, err := machine.Open(machine.Options{Dir: "/var/lib/flashdbm", Partitions: 3, Durability: partition.Sync, Listen: []machine.Listen{{Domain: d, Addr: "/run/n1.sock"}}})
//	...
//	err = n.Close()
//
// # Files
//
// The directory has ramp.json, which says how many partitions there are and under which seed keys are hashed, and partition-N.fdbm for each of them.
// Both are drawn when the directory is new, and stay. The engine's lock on each file keeps a second node out of the directory.
//
// # Threads
//
// A partition is served by whoever holds its lock: its thread, which looks for messages as long as there is something to do and for another 20 µs and
// sleeps then without the lock; a goroutine of the node's process that calls it (Prepare, Commit, Abort, Get), which does only what it has
// come for; or a thread of its store that has news.
//
//  1. Nothing that the partition calls takes the lock of another partition: notes go to a mailbox.
//  2. Who leaves something that the thread has to do (a note, an answer to a connection, a new connection) wakes it when that is there.
//
// A node of several (Options.Cluster) has a member of each partition's replicas in the place of the partition: see partition.Member for what it does, and
// package membership for what nodes agree on. Goroutines of the node's process call nothing then: they are clients like others.
package machine
