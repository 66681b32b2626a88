package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// formatBytes writes a number of bytes with a binary unit, for example "1.4 MiB".
func formatBytes(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB", "PiB", "EiB"} {
		// Rounding must not show 1024.0 of the smaller unit.
		if value < 1023.95 {
			break
		}
		value, unit = value/(1<<10), next
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// parseBytes parses a number of bytes with or without a unit: "4096", "1.5MiB", "20 MB", "1G". K, M, G and T are
// binary, like KiB and so on; KB and so on are decimal.
func parseBytes(text string) (int64, error) {
	number := strings.TrimRightFunc(text, unicode.IsLetter)
	unit := strings.ToLower(text[len(number):])
	scale := 1.0
	if i := strings.IndexByte("kmgt", (unit + " ")[0]); i >= 0 {
		base := 1024.0
		if unit[1:] == "b" {
			base = 1000
		}
		scale = math.Pow(base, float64(i+1))
		unit = strings.TrimPrefix(unit[1:], "i")
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || unit != "" && unit != "b" || !(value >= 0) || value*scale > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is not a number of bytes", text)
	}
	return int64(value * scale), nil
}

// formatCount writes n with a comma between groups of three digits.
func formatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(digits) - 3; i > first; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// formatDuration formats d with about three digits.
func formatDuration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}
