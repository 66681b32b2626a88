//go:build !race

package dbm

import "testing"

// inTurn marks a test that uses only one goroutine; see race_on_test.go.
func inTurn(*testing.T) {}

const raceEnabled = false
