package formatdoc

import (
	"bytes"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Names of fields with the same meaning in every layout.
const (
	zero     = "zero" // reserved: written as zero
	checksum = "CRC"  // its constraint says which bytes it covers
	hash     = "XXH3" // checksum of messages; its constraint says which bytes it covers
)

// Layout is a table of offset, size, field and constraint, with the values of its variables filled in. The fields
// lie back to back.
type Layout struct {
	t       testing.TB
	name    string // name of the document
	heading string
	Fields  []Field
}

// Field is one row of a layout. Offset and size are in bytes.
type Field struct {
	Name         string
	Offset, Size int
	Constraint   string
}

// Layout returns the layout under a heading. An offset or a size is a sum of numbers and of variables with a
// factor, as in "48 + 10n + 16r".
func (d *Doc) Layout(heading string, variables map[string]int) Layout {
	d.t.Helper()
	t := d.Table(heading)
	offsets, sizes, names, constraints := t.Column("offset"), t.Column("size"), t.Column("field"), t.Column("constraint")
	l := Layout{t: d.t, name: d.name, heading: heading}
	for i, name := range names {
		f := Field{name, t.sum(offsets[i], variables), t.sum(sizes[i], variables), constraints[i]}
		if i > 0 {
			if before := l.Fields[i-1]; f.Offset != before.Offset+before.Size {
				d.t.Errorf("%s: %s: %s is at %d, what precedes it ends at %d", d.name, heading, name, f.Offset, before.Offset+before.Size)
			}
		}
		l.Fields = append(l.Fields, f)
	}
	return l
}

var term = regexp.MustCompile(`^([0-9,]*)([a-z]?)$`)

// sum evaluates an offset or a size.
func (t *Table) sum(text string, variables map[string]int) int {
	t.t.Helper()
	total := 0
	for part := range strings.SplitSeq(text, "+") {
		m := term.FindStringSubmatch(strings.TrimSpace(part))
		if m == nil || m[0] == "" {
			t.t.Fatalf("%s: %s: %q is no sum", t.name, t.Heading, text)
		}
		factor, value := 1, 1
		if m[1] != "" {
			factor = int(t.number(m[1]))
		}
		if m[2] != "" {
			var known bool
			if value, known = variables[m[2]]; !known {
				t.t.Fatalf("%s: %s: what is %s in %q?", t.name, t.Heading, m[2], text)
			}
		}
		total += factor * value
	}
	return total
}

func (t *Table) number(text string) uint64 {
	t.t.Helper()
	n, err := strconv.ParseUint(strings.ReplaceAll(text, ",", ""), 0, 64)
	if err != nil {
		t.t.Fatalf("%s: %s: %q is no number", t.name, t.Heading, text)
	}
	return n
}

// End returns where the last field ends.
func (l Layout) End() int {
	f := l.Fields[len(l.Fields)-1]
	return f.Offset + f.Size
}

// Field returns a field by its name.
func (l Layout) Field(name string) Field {
	l.t.Helper()
	for _, f := range l.Fields {
		if f.Name == name {
			return f
		}
	}
	l.t.Fatalf("%s: %s: no field %q", l.name, l.heading, name)
	return Field{}
}

// In returns the bytes of the field in an image.
func (f Field) In(image []byte) []byte { return image[f.Offset : f.Offset+f.Size] }

// Check compares the layout with an encoder. encode returns the image of a structure in which the named field has
// the given bytes, in file order, and all other fields are zero; ok is false for a field that has the same bytes in
// all images. Each field must be where the layout says, and must change nothing else but checksums. Fields called
// zero must be zero.
func (l Layout) Check(encode func(field string, value []byte) (image []byte, ok bool)) {
	l.t.Helper()
	for _, f := range l.Fields {
		empty, ok := encode(f.Name, make([]byte, f.Size))
		if f.Name == zero {
			if !isZero(f.In(l.image(encode))) {
				l.t.Errorf("%s: %s: something is at %d, which is said to be zero", l.name, l.heading, f.Offset)
			}
			continue
		}
		if !ok {
			continue
		}
		for _, value := range patterns(f.Size) {
			image, _ := encode(f.Name, value)
			want := bytes.Clone(empty)
			copy(f.In(want), value)
			l.withoutChecksums(want)
			l.withoutChecksums(image)
			if at := firstDifference(want, image); at >= 0 {
				l.t.Errorf("%s: %s: %s is said to be the %d bytes at %d; with %x there, byte %d is %#x instead of %#x", l.name,
					l.heading, f.Name, f.Size, f.Offset, value, at, image[at], want[at])
			}
		}
	}
}

// image returns an image in which every field that encode can set has all bits set.
func (l Layout) image(encode func(string, []byte) ([]byte, bool)) []byte {
	var last []byte
	for _, f := range l.Fields {
		if image, ok := encode(f.Name, bytes.Repeat([]byte{0xFF}, f.Size)); ok {
			if last == nil {
				last = image
			}
			for i := range last {
				last[i] |= image[i]
			}
		}
	}
	return last
}

// patterns returns values of a field that reveal swapped bytes and missing
// bits.
func patterns(size int) [][]byte {
	rising := make([]byte, size)
	for i := range rising {
		rising[i] = byte(i + 1)
	}
	return [][]byte{rising, bytes.Repeat([]byte{0xFF}, size)}
}

func (l Layout) withoutChecksums(image []byte) {
	for _, f := range l.Fields {
		if f.Name == checksum || f.Name == hash {
			clear(f.In(image))
		}
	}
}

var coverage = regexp.MustCompile(`bytes ([0-9]+) to ([0-9]+)`)

// CheckChecksum fails the test unless the field called CRC is the CRC32C of prefix followed by the bytes that its
// constraint names.
func (l Layout) CheckChecksum(image, prefix []byte) {
	l.t.Helper()
	f := l.Field(checksum)
	m := coverage.FindStringSubmatch(f.Constraint)
	if m == nil {
		l.t.Fatalf("%s: %s: what the checksum covers: %q", l.name, l.heading, f.Constraint)
	}
	first, _ := strconv.Atoi(m[1])
	last, _ := strconv.Atoi(m[2])
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	want := crc32.Update(crc32.Checksum(prefix, castagnoli), castagnoli, image[first:last+1])
	if got := f.In(image); [4]byte(got) != [4]byte{byte(want), byte(want >> 8), byte(want >> 16), byte(want >> 24)} {
		l.t.Errorf("%s: %s: the checksum is %x, that of %s is %08x", l.name, l.heading, got, f.Constraint, want)
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
