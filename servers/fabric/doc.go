// Package fabric is memory that other processes reach without this one's help, and messages between processes: the part of RDMA's
// verbs that the servers need, and nothing else. Providers are packages below it: mem, shm, tcp, sim and verbs. One conformance suite,
// fabrictest, defines them all.
//
// What holds for every provider, and no more than this:
//
//   - An aligned word of eight bytes is read and written whole. Other than that a Read or a Write takes its words in any order, so
//     no protocol relies on order inside an operation: what is read, or polled for, proves itself by a hash.
//   - What has completed precedes what is posted later. The Writes of an endpoint precede its later Sends and Notifys. Nothing else is
//     ordered; a place is written again only after the last Write to it has completed.
//   - A Write that has completed is in the peer's memory, and is lost only with the peer's process or host. One that has failed may
//     have happened in any part.
//   - The first failure ends the endpoint. Everything that was posted completes, what stands behind the failure with ErrFlushed.
//   - A completed Read does not say that the owner still lives.
//   - Bounds and keys are checked for each operation, and a fenced region is reached by nobody.
//   - A Send needs a posted Recv at the peer; where none comes within a second the endpoint ends.
package fabric
