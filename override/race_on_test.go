//go:build race

package override

import "testing"

// inTurn skips a test of one goroutine in short runs: the race detector would find nothing.
func inTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("its steps follow one another, each after the one before: nothing for the race detector to see")
	}
}
