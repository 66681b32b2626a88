// Package machine is a node of a RAMP table: partitions, each with a thread, a file and connections of its own, and
// the listeners at which clients connect.
//
//	n, err := machine.Open(machine.Options{Dir: "/var/lib/flashdbm", Partitions: 3, Durability: partition.Sync, Listen: []machine.Listen{{Domain: d, Addr: "/run/n1.sock"}}})
//	...
//	err = n.Close()
//
// # Files
//
// The directory has ramp.json, which gives the number of partitions and the seed of the keys' hash, and
// partition-N.fdbm for each partition. Both values are chosen when the directory is new, and never change. The
// engine's lock on each file keeps a second node out of the directory.
//
// # Threads
//
// The holder of a partition's lock serves it: its thread, which polls for messages as long as there is work and for
// another 20 µs and then sleeps without the lock; a goroutine of the node's process that calls it (Prepare, Commit,
// Finished, Abort, Get), which serves its own call and does a little of the work that is due by time; or a thread of
// its store that has answers for it. Work that callers leave to the thread costs a wake-up. If callers also keep the
// lock busy, the lock is handed to the thread before the thread runs, and all other callers wait for that.
//
//  1. No function that the partition calls takes the lock of another partition: notes go to a
//     mailbox.
//  2. A goroutine that leaves work for the thread (a note, an answer to a connection, a new connection) wakes the
//     thread afterwards.
//
// In a cluster (Options.Cluster), a node has a member of each partition's replicas instead of the partition: see
// partition.Member, and package membership for what the nodes agree on. Goroutines of the node's process cannot call
// its partitions: they are clients like others.
package machine
