// Package format has the numbers and names of the database file that both the log and the map of its space need. The format itself is described
// in docs/format.md.
package format
