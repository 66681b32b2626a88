//go:build !race

package main

import "testing"

// inTurn marks a test that uses only one goroutine; see race_on_test.go.
func inTurn(*testing.T) {}
