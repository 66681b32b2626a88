//go:build !race

package dbm

const raceEnabled = false
