package inspect

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"flashdbm/internal/formatdoc"
	"flashdbm/internal/pagefile"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// example opens the database of the worked example in docs/format.md.
func example(t *testing.T) *pagefile.File {
	t.Helper()
	var file []byte
	for line := range strings.Lines(formatdoc.Open(t).Block("Worked example")) {
		line = strings.TrimSpace(line)
		if len(line) < 8 || line[0] == '#' {
			continue
		}
		at, err := strconv.ParseUint(line[:8], 16, 32)
		require.NoError(t, err, line)
		for uint64(len(file)) < at { // lines left out are like the line before
			file = append(file, file[len(file)-16:]...)
		}
		if len(line) > 58 {
			b, err := hex.DecodeString(strings.ReplaceAll(line[8:58], " ", ""))
			require.NoError(t, err, line)
			file = append(file, b...)
		}
	}
	path := filepath.Join(t.TempDir(), "example.fdbm")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	f, err := pagefile.Open(t.Context(), vfs.OS(), path, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// shown runs an inspector and returns its output as text.
func shown(t *testing.T, f *pagefile.File, show func(x *Inspector) error) (parts []Part, text string) {
	t.Helper()
	var b strings.Builder
	var print func(p *Part, indent string)
	print = func(p *Part, indent string) {
		fmt.Fprintf(&b, "%s%s", indent, p.Name)
		for _, field := range p.Fields {
			value := field.Value
			if bytes, ok := value.([]byte); ok {
				value = fmt.Sprintf("%.9q", bytes)
			}
			fmt.Fprintf(&b, "; %s: %v", field.Name, value)
		}
		b.WriteByte('\n')
		for i := range p.Parts {
			print(&p.Parts[i], indent+" ")
		}
	}
	require.NoError(t, show(New(f, func(p Part) error {
		parts = append(parts, p)
		print(&p, "")
		return nil
	})))
	return parts, b.String()
}

// TestExample compares the output for the worked example in docs/format.md with the comments of the example.
func TestExample(t *testing.T) {
	f := example(t)
	ctx := context.Background()
	for _, c := range []struct {
		name string
		show func(x *Inspector) error
		want string
	}{
		{"superblocks", (*Inspector).Superblocks, `superblock in page 0; newest: false; segment pages: 256; compatible features: 0x0; incompatible features: 0x14; UUID: 010203040506470889 0a0b0c0d0e0f10; number: 2; run: segment 0, page 5, group 3, digest d0090d75, check 14131211; start: segment 0, page 6, group 4, digest a064433e, check 14131211; first group: 3; last group: 3; lineage: 0000000000000000
superblock in page 1; newest: true; segment pages: 256; compatible features: 0x0; incompatible features: 0x14; UUID: 010203040506470889 0a0b0c0d0e0f10; number: 3; run: segment 0, page 13, group 8, digest 33bba4ac, check 14131211; start: segment 0, page 14, group 9, digest 10229792, check 14131211; first group: 8; last group: 8; lineage: 0000000000000000
`},
		{"page 9", func(x *Inspector) error { return x.Page(ctx, 9) }, `page 9; byte: 36864; segment: 0; checksum: right
 mux area; CRC: 12f2c4e4; kind: tree page; flags: last, page group; lag: 0; name: 0xc000000000000001, root of tree 1; group: 5; pages: 3; count: 2; digest: da4113e8
 node; level: 0; n: 2
  record 0; key: "apple"; value: "red"
  record 1; key: "cherry"; value length: 4100; in a value run, page: 7
`},
		{"page 10", func(x *Inspector) error { return x.Page(ctx, 10) }, `page 10; byte: 40960; segment: 0; checksum: right
 mux area; CRC: 2715bc8e; kind: redo stream; flags: last, record group; lag: 0; span: 0 logged values, 0 raw pages, CRC 00000000; group: 6; pages: 1; count: 1; digest: 4b2fc943
 redo record 0; byte: 40; record: delete; key: "cherry"
`},
		{"page 8, raw", func(x *Inspector) error { return x.Page(ctx, 8) }, `page 8; byte: 32768; segment: 0; checksum: wrong for a page of the log: damaged, raw, free, or of an earlier life of the segment
`},
		{"key", func(x *Inspector) error { return x.Key(ctx, []byte("apple")) }, `node; name: 0xc000000000000001, root of tree 1; page: 11; level: 0; n: 1; as of group, at least: 6
 record 0; key: "apple"; value: "red"
redo; record: none with this key behind the redo start
`},
		{"log", func(x *Inspector) error { return x.Log(ctx, 5, 3) }, `group 5; kind: page group; whole: true; pages: 3; count: 2
 page 7; kind: first page of a value run; group: 5; group kind: page group; with raw pages: 2
 page 9; kind: tree page; group: 5; group kind: page group; name: 0xc000000000000001, root of tree 1; last: true
group 6; kind: record group; whole: true; pages: 1; count: 1
 page 10; kind: redo stream; group: 6; group kind: record group; last: true
group 7; kind: part of a flush; whole: true; pages: 2; count: 1
 page 11; kind: tree page; group: 7; group kind: part of a flush; name: 0xc000000000000001, root of tree 1
 page 12; kind: flush stream; group: 7; group kind: part of a flush; last: true
`},
		{"table", func(x *Inspector) error { return x.Table(ctx) }, `translation table; of the checkpoint that ends in group: 8; base: 6; born: 0; root: 0xc000000000000001, root of tree 1; records: 1; entries: 1; behind: 0
 entry 0; name: 0xc000000000000001, root of tree 1; address: 11
`},
		{"space", func(x *Inspector) error { return x.Space(ctx) }, `space map; of the checkpoint that ends in group: 8; segments: 2
 segment 0; state: in use; salt: 1817161514131211; sequence: 1; last group: 7; live pages: 1
 segment 1; state: absent
`},
	} {
		_, text := shown(t, f, c.show)
		require.Equal(t, strings.ReplaceAll(c.want, "0889 0a", "08890a"), text, c.name)
	}
	require.ErrorContains(t, New(f, nil).Page(ctx, 1000), "there is no page 1000")
	require.ErrorContains(t, New(f, nil).Node(ctx, 1000), "there is no node 1000")
	require.ErrorContains(t, New(f, nil).Segment(ctx, 1000), "there is no segment 1000")
}

// TestWords: fields have the same names as in docs/format.md.
func TestWords(t *testing.T) {
	f := example(t)
	ctx := context.Background()
	doc := formatdoc.Open(t)
	get := func(show func(x *Inspector) error, path ...string) Part {
		parts, _ := shown(t, f, show)
		for _, name := range path {
			found := false
			for _, p := range parts {
				if p.Name == name {
					found = true
					parts = append([]Part{p}, p.Parts...)
					break
				}
			}
			require.True(t, found, name)
		}
		return parts[0]
	}
	variables := map[string]int{"t": 1, "r": 0, "m": 0, "d": 1, "e": 1, "n": 1, "c": 0, "p": 0}
	for heading, part := range map[string]Part{
		"Superblock":        get((*Inspector).Superblocks, "superblock in page 1"),
		"Segment header":    get(func(x *Inspector) error { return x.Segment(ctx, 0) }, "segment 0", "header"),
		"Mux area":          get(func(x *Inspector) error { return x.Page(ctx, 9) }, "page 9", "mux area"),
		"Node":              get(func(x *Inspector) error { return x.Page(ctx, 9) }, "page 9", "node"),
		"Value run":         get(func(x *Inspector) error { return x.Page(ctx, 7) }, "page 7", "value run"),
		"Flush stream":      get(func(x *Inspector) error { return x.Page(ctx, 12) }, "page 12", "flush stream"),
		"Translation table": get(func(x *Inspector) error { return x.Table(ctx) }, "translation table"),
	} {
		names := map[string]bool{"newest": true, "root": true, "records": true, "of the checkpoint that ends in group": true, "behind": true}
		for _, field := range doc.Layout(heading, variables).Fields {
			names[field.Name] = true
		}
		for _, field := range part.Fields {
			require.True(t, names[field.Name], "%s: %q is no field of docs/format.md", heading, field.Name)
		}
	}
}
