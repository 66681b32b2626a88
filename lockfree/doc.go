// Package lockfree has the two structures through which concurrent transactions communicate without locks. It
// knows nothing about databases.
//
//   - [List]: a push-only list; a push is one compare-and-swap of its head. The order of pushes is the order of
//     commits. One consumer drains the list.
//   - [Registry]: which readers read at which point in time. A reader registers and leaves by two atomic
//     writes; a scan returns the points at which no reader can be.
//
// All atomics are those of sync/atomic, which the Go memory model makes sequentially consistent: there is one
// total order of all of them that agrees with the order within each goroutine. The arguments in this package
// are next to the code, and rest on that order alone.
package lockfree

// linePairBytes is the distance that keeps two words from sharing a cache line.
// It is two lines of 64 bytes because the adjacent-line prefetcher of amd64
// fetches lines in pairs, and one line of 128 bytes on some arm64.
const linePairBytes = 128
