//go:build !race

package vfs_test

import "testing"

// inTurn is for tests of one goroutine; see race_on_test.go.
func inTurn(*testing.T) {}
