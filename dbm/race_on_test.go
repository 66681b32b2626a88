//go:build race

package dbm

import "testing"

// inTurn skips a test with a single goroutine in short runs: the race detector cannot find anything in it.
func inTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("its steps follow one another, each after the one before: nothing for the race detector to see")
	}
}

// raceEnabled is true when the race detector is on, which needs memory of its own.
const raceEnabled = true
