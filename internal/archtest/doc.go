// Package archtest holds the tests of rules about the source as a whole: which package may import which, which
// files may access memory without Go's checks, how long a file may be. It has no code of its own.
package archtest
