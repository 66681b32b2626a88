// Package archtest holds the tests of what the source as a whole must look like: who may import whom, where memory may be looked at
// without Go's checks, how long a file may be. It has no code of its own.
package archtest
