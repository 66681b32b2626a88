// Package linear checks that operations on single keys are linearizable: that each appears to take effect at one
// moment between its call and its return. The checker is porcupine, an external dependency, so this package is a
// module of its own. make linear runs it.
package linear
