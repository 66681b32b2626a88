//go:build race

package beside

// raceEnabled is true when the race detector is on, under which append of a make allocates both.
const raceEnabled = true
