package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// moduleVersion returns what tells the version of a Go module in this build.
func moduleVersion(path string) func() string {
	return func() string {
		if build, ok := debug.ReadBuildInfo(); ok {
			for _, m := range build.Deps {
				if m.Path == path {
					return m.Version
				}
			}
		}
		return "unknown"
	}
}

func kernelVersion() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}

// processor names the machine's processor.
func processor() string {
	content, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(content), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// processorTime is the time that all processors have worked since the start of the machine.
func processorTime() time.Duration {
	content, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(content), "\n")
	ticks := int64(0)
	for i, word := range strings.Fields(line) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && i != 4 && i != 5 && i < 9 { // neither idle nor waiting for a device
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100
}

// revision names the source that this program was built from; the Makefile sets it.
var revision = "unknown"

// number prints a value with three or four digits that mean something.
func number(v float64) string {
	switch {
	case v >= 10e6:
		return strconv.FormatFloat(v/1e6, 'f', 1, 64) + " M"
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + " M"
	case v >= 10e3:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + " k"
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'f', 2, 64) + " k"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
