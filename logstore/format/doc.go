// Package format has the constants and types of the database file that both package logstore and package space
// need. docs/format.md describes the format.
package format
