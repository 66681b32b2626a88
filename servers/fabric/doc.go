// Package fabric defines memory that other processes reach without the help of the process that owns it, and messages
// between processes: the part of RDMA's verbs that the servers need, and nothing else. The providers are the packages
// mem, shm, tcp, sim and verbs below it. One conformance suite, fabrictest, defines what all of them do.
//
// Every provider guarantees the following, and callers may rely on nothing more:
//
//   - An aligned word of eight bytes is read and written whole. Apart from that, a Read or a Write takes its words in
//     any order. So no protocol relies on order inside an operation: bytes that a program reads or polls for carry a
//     hash that proves them complete.
//   - An operation that has completed precedes every operation that is posted later. The Writes of an endpoint
//     precede its later Sends and Notifys. Nothing else is ordered, so a place is written again only after the last
//     Write to it has completed.
//   - A Write that has completed is in the peer's memory, and is lost only with the peer's process or host. A Write
//     that has failed may have happened in part, in full, or not at all.
//   - The first failure ends the endpoint. All posted operations complete; those after the failed one complete with
//     ErrFlushed.
//   - A completed Read does not prove that the owner's process is still alive.
//   - Bounds and keys are checked for each operation, and no peer reaches a fenced region.
//   - A Send needs a Recv that the peer has posted. If the peer posts none within a second, the endpoint ends.
package fabric
