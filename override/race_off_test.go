//go:build !race

package override

import "testing"

// inTurn is for tests of one goroutine; see race_on_test.go.
func inTurn(*testing.T) {}
