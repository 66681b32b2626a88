//go:build race

package dbm

// raceEnabled says that the race detector watches, which takes memory of its own.
const raceEnabled = true
