// Package invariants is a switch: the build tag invariants makes the engine check, while it works, what it otherwise
// takes for granted, and panic where that does not hold. Without the tag the checks are not compiled. What costs next
// to nothing is checked in every build, beside the code that it is about.
//
// With the tag:
//
//   - token: the methods of package mvcc that others use to look at the tree or to write the log find it held by
//     somebody; not in an engine with Options.Manual, which one goroutine uses;
//   - epochs: the numbers of the versions of the tree, of the commits that they have, and the watermarks of applied
//     and durable commits never decrease;
//   - pins: nothing is freed that a reader who is registered at that moment may see;
//   - reservations: neither the pages promised by a file, nor those held for dirty pages, are ever fewer than none;
//   - references: the blocks of freed nodes are overwritten, so that who still uses one is found out; a shared block is
//     neither held nor released once it is free.
//
// make invariants runs the tests of the engine with it.
package invariants

// Check panics if Enabled and not ok. To compute what is checked may cost something: if so, the caller asks for Enabled
// first.
func Check(ok bool, what string) {
	if Enabled && !ok {
		panic("flashdbm: invariant: " + what)
	}
}
