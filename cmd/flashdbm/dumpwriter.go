package main

import (
	"bufio"
	"encoding/hex"
)

// dumpWriter writes one database as a dump: newDumpWriter the header, record
// each record, end the end mark. A dump without it counts as cut short.
type dumpWriter struct {
	out   *bufio.Writer
	print bool
	line  []byte // the line being built, kept for its capacity
}

// newDumpWriter starts a dump on out. The caller flushes out after end.
func newDumpWriter(out *bufio.Writer, printable bool) *dumpWriter {
	format := dumpFormatBytes
	if printable {
		format = dumpFormatPrint
	}
	// A bufio.Writer keeps its first error and returns it from then on, so
	// only the last write of each method is checked.
	out.WriteString(dumpVersionLine + "\nformat=" + format + "\ntype=btree\n" + dumpHeaderEnd + "\n")
	return &dumpWriter{out: out, print: printable}
}

func (d *dumpWriter) record(key, value []byte) error {
	if err := d.item(key); err != nil {
		return err
	}
	return d.item(value)
}

func (d *dumpWriter) end() error {
	_, err := d.out.WriteString(dumpDataEnd + "\n")
	return err
}

// itemChunkBytes bounds the line buffer: a value may be gigabytes long.
const itemChunkBytes = 32 << 10

func (d *dumpWriter) item(b []byte) error {
	d.out.WriteByte(' ')
	for len(b) > 0 {
		chunk := b[:min(len(b), itemChunkBytes)]
		b = b[len(chunk):]
		d.line = d.appendItem(d.line[:0], chunk)
		d.out.Write(d.line)
	}
	return d.out.WriteByte('\n')
}

func (d *dumpWriter) appendItem(line, b []byte) []byte {
	if !d.print {
		return hex.AppendEncode(line, b)
	}
	for _, c := range b {
		switch {
		case c == '\\':
			line = append(line, `\\`...)
		case c >= ' ' && c <= '~':
			line = append(line, c)
		default:
			line = append(line, '\\')
			line = hex.AppendEncode(line, []byte{c})
		}
	}
	return line
}
