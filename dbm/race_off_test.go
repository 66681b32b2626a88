//go:build !race

package dbm

import "testing"

// inTurn is for tests of one goroutine; see race_on_test.go.
func inTurn(*testing.T) {}

const raceEnabled = false
