// Package invariants is a switch: with the build tag invariants the engine checks its invariants while it works, and
// panics if one does not hold. Without the tag these checks are not compiled. Checks that cost next to nothing are in
// every build, in the code that they are about.
//
// With the tag:
//
//   - token: the token is held by some goroutine whenever the methods of package mvcc that read the working tree
//     or write the log are called; not checked in an engine with Options.Manual, which one goroutine uses;
//   - epochs: the numbers of the versions of the tree, of the commits that they have, and the watermarks of applied
//     and durable commits never decrease;
//   - pins: nothing is freed that a reader registered at that moment may see;
//   - reservations: neither the number of pages that a file has promised, nor the number held for dirty pages, is
//     ever negative;
//   - references: the blocks of freed nodes are overwritten, so that a reader that still uses one fails; no reference
//     to a shared block is taken or released once the block is free.
//
// make invariants runs the tests of the engine with it.
package invariants

// Check panics if Enabled and not ok. If it costs time to compute ok, the caller tests Enabled first.
func Check(ok bool, what string) {
	if Enabled && !ok {
		panic("flashdbm: invariant: " + what)
	}
}
