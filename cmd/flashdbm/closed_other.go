//go:build !(cgo && unix)

package main

import "os"

// wasClosed cannot find out without C: a closed stream looks like /dev/null.
func wasClosed(int) bool { return false }

func closedStream(string) *os.File { return nil }

const wasClosedIsKnown = false
