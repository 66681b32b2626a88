// Package lockfree holds the two structures through which concurrent
// transactions meet without locks. It knows nothing of databases.
//
//   - [List]: a push-only list settled by one compare-and-swap at its head. Its
//     order of pushes is the order of commits. One consumer drains it.
//   - [Registry]: who reads at which point in time. Readers come and go with
//     two atomic writes; a scanner learns which points no reader can be at.
//
// All atomics are those of sync/atomic, which the Go memory model makes
// sequentially consistent: there is one total order of all of them, agreeing
// with the order within each goroutine. The arguments in this package, which
// are beside the code, rest on that order and on nothing else.
package lockfree

// linePairBytes is the distance that keeps two words from sharing a cache line.
// It is two lines of 64 bytes because the adjacent-line prefetcher of amd64
// fetches lines in pairs, and one line of 128 bytes on some arm64.
const linePairBytes = 128
