// Package verbs is a fabric over RDMA devices: InfiniBand, RoCE, and the kernel's software device rdma_rxe. It uses
// libfabric's endpoints of type FI_EP_MSG, which are reliable connections of queue pairs. Building it takes the tag
// verbs, cgo, and libfabric's headers (Debian: libfabric-dev); without the tag the package is empty.
//
// Each connection has an additional TCP connection. On the TCP connection both ends send a greeting, as
// fabric/greeting says; the accepting end's greeting is followed by the port of its RDMA listener (2 bytes) and a
// token (8), which the dialling end passes to fi_connect. Later the TCP connection carries one byte for each Notify,
// and its end ends the endpoint:
//
//   - A kernel closes the sockets of a dead process at once. The queue pair of a dead process merely stops answering.
//   - A Write with immediate data could carry a Notify, but it takes a receive buffer of the peer as a Send does: a
//     Notify that comes before a Send would take the Recv that was posted for the Send. The byte is written after the
//     Write has completed, so the Write has been placed.
//
// Completions:
//
//   - Every operation is posted with a completion of its own, even without Signal, so that this end always knows how
//     far the device has come. The ledger decides which completions the caller sees.
//   - Completions of one side of an endpoint come in order, and carry the operation's number. A completion completes
//     all operations before it, because libfabric has been seen to lose completions.
//   - An operation that fails ends the endpoint. The queue pair is destroyed before operations are flushed, so that
//     the device no longer touches their memory. A completion with the status "flushed" does not name a cause: the
//     end that has the cause closes the TCP connection.
//   - An operation of no bytes is not posted. It completes when all operations before it have.
//
// A region is registered twice: for the operations of this process, and for those of peers. Fence ends the second
// registration; when that call returns, the device refuses every operation with the key. Registered memory is locked,
// and counts twice against RLIMIT_MEMLOCK.
//
// The device checks keys of 32 bits, and the initiator checks the other fields of a fabric.Key: do not use this
// provider on a network with hosts that could guess keys.
package verbs
