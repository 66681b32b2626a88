// Package machine is a node of HydraDB: shards, each with a thread, a file and connections of its own, and the
// listeners at which clients connect.
//
//	n, err := machine.Open(machine.Options{Dir: "/var/lib/flashdbm", Durability: shard.Async, Listen: []machine.Listen{{Domain: d, Addr: "/run/n1.sock"}}})
//	...
//	err = n.Close()
//
// # Files
//
// The directory has node.json, which gives the number of shards and the seed of the keys' hash, and shard-N.fdbm for
// each shard. Both values are chosen when the directory is new, and never change: the file's records are in the order
// of their hashes. The engine's lock on each file keeps a second node out of the directory.
//
// # Threads
//
// A shard's goroutine is locked to a thread. It sweeps as long as there is work and for another 20 µs; then it arms
// its connections, so that a sender notifies it, and sleeps. While requests wait for the file, it does not poll for
// these 20 µs. A busy shard's goroutine never yields, so it takes one of Go's processors: GOMAXPROCS is raised by one
// for each shard that gets a connection, or the other goroutines of the process would starve. A shard that is only
// called from within the process does not need that; with it, a GET of RESP takes 5 % more.
//
// Goroutines of the node's process call a shard without messages (hydra.Local). While the shard's thread sleeps, the
// caller serves the shard itself. A shard without other clients does not poll for 20 µs before it sleeps: its callers
// find it asleep sooner.
//
// A thread can sleep on one queue. If the node listens on several providers, each further queue has a goroutine that
// sleeps on it while the shard sleeps, and wakes the shard. The queue belongs to one of the two at a time.
package machine
