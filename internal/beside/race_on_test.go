//go:build race

package beside

// raceEnabled says that the race detector watches, under which append of a make allocates both.
const raceEnabled = true
