package main

import (
	"strconv"
	"unicode/utf8"
)

// quoted returns b unchanged if it is plain, and otherwise as a quoted Go string with escapes. No two keys look
// alike, none breaks a line or controls the terminal, and strconv.Unquote is the inverse.
func quoted(b []byte) string {
	if plain(b) {
		return string(b)
	}
	return strconv.Quote(string(b))
}

// plain reports whether b can be shown as it is on a line: printable UTF-8 that is not empty, does not begin with a
// quote, and has no space at either end.
func plain(b []byte) bool {
	if len(b) == 0 || b[0] == '"' || b[0] == ' ' || b[len(b)-1] == ' ' {
		return false
	}
	return printable(b, strconv.IsPrint)
}

// harmless reports whether b can be shown on a terminal as it is: printable
// UTF-8, line ends and tabs.
func harmless(b []byte) bool {
	return printable(b, func(r rune) bool { return r == '\n' || r == '\t' || strconv.IsPrint(r) })
}

func printable(b []byte, ok func(rune) bool) bool {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 || !ok(r) {
			return false
		}
		b = b[size:]
	}
	return true
}
