package main

import (
	"bufio"
	"encoding/hex"
	"io"
)

// dumpWriter writes one database as a dump: newDumpWriter writes the header, record each record, end the end mark.
// A dump without the end mark counts as cut short.
type dumpWriter struct {
	out   *bufio.Writer
	print bool
	line  []byte // memory for the line being built
	chunk []byte // memory for a part of a value
}

// newDumpWriter begins a dump on out, of the named database if there are several. The caller has to flush out after
// end.
func newDumpWriter(out *bufio.Writer, printable bool, database string) *dumpWriter {
	format := dumpFormatBytes
	if printable {
		format = dumpFormatPrint
	}
	// A bufio.Writer keeps its first error and returns it from then on, so
	// only the last write of each method is checked.
	out.WriteString(dumpVersionLine + "\nformat=" + format + "\n")
	if database != "" {
		out.WriteString("database=" + database + "\n")
	}
	out.WriteString("type=btree\n" + dumpHeaderEnd + "\n")
	return &dumpWriter{out: out, print: printable, chunk: make([]byte, itemChunkBytes)}
}

func (d *dumpWriter) record(key []byte, value io.Reader) error {
	d.out.WriteByte(' ')
	d.item(key)
	d.out.WriteString("\n ")
	for {
		n, err := value.Read(d.chunk)
		d.item(d.chunk[:n])
		if err == io.EOF {
			return d.out.WriteByte('\n')
		}
		if err != nil {
			return err
		}
	}
}

func (d *dumpWriter) end() error {
	_, err := d.out.WriteString(dumpDataEnd + "\n")
	return err
}

// itemChunkBytes bounds the buffers: a value may be gigabytes long.
const itemChunkBytes = 32 << 10

// item writes a part of an item.
func (d *dumpWriter) item(b []byte) {
	for len(b) > 0 {
		part := b[:min(len(b), itemChunkBytes)]
		b = b[len(part):]
		d.line = d.appendItem(d.line[:0], part)
		d.out.Write(d.line)
	}
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
