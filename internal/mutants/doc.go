// Package mutants tests the tests: it runs them on the engine with one seeded bug at a time and shows which test
// finds it. A test that has never failed proves nothing.
//
// A mutant is a small replacement of text. It is kept in testdata, not in the engine's source; the go command
// builds it with an overlay. Each mutant belongs to a rule, a line of testdata/rules.txt: a failure that the engine
// must survive, or a rule of its design.
//
//	mutant NAME
//	rule   RULE, the first word of a line of testdata/rules.txt
//	what   one line: what the mutant breaks
//	in     PACKAGE DECLARATION, such as "logstore Store.Sync"
//	-old text, which the declaration has exactly once; several lines are several such lines
//	+new text
//	test   PACKAGE REGEXP [ARGUMENT ...]
//
// PACKAGE is a directory, from the root of the repository, in the engine or in another module. DECLARATION is the
// name of a function; of a method, with its type before it; or of a type, constant or variable at the top level of
// any non-test file of the package. The old text is compared token by token, so comments, line breaks and spaces do
// not count: code can move to another file, and its layout and comments can change, without a change of the mutant.
//
// A line "hangs" says that a test which does not end finds the mutant; without it, such a test counts as too slow.
// "in" with its texts, and "test", may occur several times; the tests run in that order until one fails. A line
// that begins with # is a comment.
//
// When the engine changes so that a text no longer fits, the mutant must be adapted so that it breaks the same
// rule in the new text. TestApply names the mutants that do not fit, and finds a text that has moved to another
// declaration. It runs with all other tests and takes no time. TestMutants runs the mutants: make mutants. Most
// mutants of a package share one test binary, see schema.
package mutants
