//go:build !race

package beside

// raceEnabled: see race_on_test.go.
const raceEnabled = false
