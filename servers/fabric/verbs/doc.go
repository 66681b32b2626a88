// Package verbs is a fabric over RDMA devices: InfiniBand, RoCE, and the kernel's software device rdma_rxe. It uses libfabric's endpoints of type
// FI_EP_MSG, which are reliable connections of queue pairs. It is built with the tag verbs, with cgo, and with libfabric's headers (Debian:
// libfabric-dev); without the tag the package is empty.
//
// Each connection has a TCP connection beside it. On that the ends greet each other, as fabric/greeting says, and the accepting end's greeting is
// followed by the port of its RDMA listener (2 bytes) and a token (8), which the dialling end gives to fi_connect. Later it carries one byte for each
// Notify, and its end is the end of the connection:
//
//   - A kernel closes the sockets of a process that dies, at once. The queue pair of a dead process only stops to answer.
//   - A Write with immediate data would bring a Notify too, but it takes a receive buffer of the peer as a Send does: a Notify that comes
//     before a Send would take the Recv that was posted for the Send. The byte is written when the Write has completed, so it has been placed.
//
// What completes when:
//
//   - Every operation is posted with a completion of its own, also one without Signal, so that this end always knows how far the device has come.
//     The ledger decides what is reported.
//   - Completions of one side of an endpoint come in order, and bear the operation's number. One that comes completes all before it: libfabric has
//     been seen to lose some.
//   - An operation that fails ends the endpoint. The queue pair is destroyed before anything is flushed: then the device no longer touches the memory
//     of what was under way. A completion that says "flushed" is no cause: the end that has the cause closes the TCP connection.
//   - An operation of no bytes is not posted. It completes when all before it have.
//
// A region is registered twice: for the operations of this process, and for the peers'. Fence ends the second registration; when that call returns
// the device refuses every operation with the key. Registered memory is locked, and counts twice against RLIMIT_MEMLOCK.
//
// The device checks keys of 32 bits, and the initiator the rest of a fabric.Key: a network on which somebody could guess keys is not one for this
// provider.
package verbs
