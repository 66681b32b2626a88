// Package mutants tests the tests: it runs them on the engine with one seeded bug at a time and shows which test finds it. A test that has
// never failed proves nothing.
//
// A mutant is a small replacement of text, kept in testdata beside the engine and not in it; the go command builds it with an overlay.
// Each belongs to a rule, a line of testdata/rules.txt: a failure that the engine must survive, or a rule of its design.
//
//	mutant NAME
//	rule   RULE, the first word of a line of testdata/rules.txt
//	what   one line: what is wrong now
//	in     PACKAGE DECLARATION, such as "logstore Store.Sync"
//	-old text, which the declaration has exactly once; several lines are several such lines
//	+new text
//	test   PACKAGE REGEXP [ARGUMENT ...]
//
// PACKAGE is a directory from the root of the repository, of the engine or of another module in it. DECLARATION is the name of a function,
// of a method behind that of its type, or of a type, a constant or a variable at the top of any file of the package that is no test. The
// old text is compared token by token: comments, line breaks and spaces do not count. Code can therefore move to another file, and its
// layout and its comments can change, without the mutant.
//
// A line "hangs" says that a test which does not end finds the mutant too; else it may just have had no time. "in" with its texts may come
// again, and so may "test": the tests are run in that order until one fails. A line of # is a comment.
//
// When the engine changes so that a text no longer fits, the mutant is carried along: the same thing is broken in the new text. TestApply
// tells which mutants do not fit, and where their texts went if they went to another declaration. It runs with all other tests and takes no
// time. TestMutants runs the mutants: make mutants. Most of them share one binary of each package's tests, see schema.
package mutants
