//go:build race

package override

import "testing"

// inTurn skips a test in short runs.
func inTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("its steps follow one another, each after the one before: nothing for the race detector to see")
	}
}
