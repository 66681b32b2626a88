package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"strings"
	"testing"

	"flashdbm/internal/formatdoc"

	"github.com/stretchr/testify/require"
)

// fixedSum is a hash with a given sum.
type fixedSum struct {
	hash.Hash
	sum []byte
}

func (f fixedSum) Sum(b []byte) []byte { return append(b, f.sum...) }

// TestFormatEndMark compares the end mark with docs/format.md.
func TestFormatEndMark(t *testing.T) {
	le := binary.LittleEndian
	l := formatdoc.Open(t).Layout("End mark", nil)
	encode := func(field string, v []byte) ([]byte, bool) {
		var out bytes.Buffer
		w, end := NewWriter(&out), End{}
		w.sum = fixedSum{w.sum, make([]byte, sha256.Size)}
		switch field {
		case "kind":
			end.Kind = Kind(le.Uint32(v))
		case "length":
			w.length = le.Uint64(v)
		case "sum":
			w.sum = fixedSum{w.sum, v}
		case "source":
			end.Token.Source = [16]byte(v)
		case "group":
			end.Token.Group = le.Uint64(v)
		default:
			return nil, false
		}
		require.NoError(t, w.End(end))
		return out.Bytes(), true
	}
	l.Check(encode)
	require.Equal(t, MarkSize, l.End())

	content := []byte("content")
	mark := stream(t, content)[len(content):]
	l.CheckChecksum(mark, nil)
	sum := sha256.Sum256(content)
	require.Equal(t, l.Field("magic").Constraint, string(l.Field("magic").In(mark)))
	require.Equal(t, l.Field("version").Constraint, fmt.Sprint(le.Uint32(l.Field("version").In(mark))))
	require.Equal(t, uint64(len(content)), le.Uint64(l.Field("length").In(mark)))
	require.Equal(t, sum[:], l.Field("sum").In(mark))
	kinds := l.Field("kind").Constraint
	require.True(t, strings.HasPrefix(kinds, fmt.Sprintf("%d: a database file", Full)), kinds)
	require.Contains(t, kinds, fmt.Sprintf("%d: an increment;", Increment))
	require.Contains(t, kinds, fmt.Sprintf("%d: an increment for a copy of", Difference))
}

// TestFormatIncrement builds each entry from its row in docs/format.md and compares it with the output of the
// encoder.
func TestFormatIncrement(t *testing.T) {
	table := formatdoc.Open(t).Table("Increment")
	codes, fields := table.Numbers("entry", "code"), table.Map("entry", "fields after the code")
	base := Token{Source: [16]byte([]byte("0123456789abcdef")), Group: 0x1122334455667788}
	var out bytes.Buffer
	c := NewChanges(&out, base)
	require.NoError(t, c.w.Flush())
	require.Equal(t, "FDBMINCR0123456789abcdef\x88\x77\x66\x55\x44\x33\x22\x11", out.String())

	value := bytes.Repeat([]byte("v"), 300)
	calls := []struct {
		entry string
		key   []byte
		write func(key []byte) error
	}{
		{"begin", nil, c.Begin},
		{"put", []byte("key"), func(key []byte) error { return c.Put(key, bytes.NewReader(value), int64(len(value))) }},
		{"keep", []byte("kept"), c.Keep},
		{"end", []byte("kex"), c.End},
		{"begin", []byte("l"), c.Begin},
		{"end", nil, c.End},
	}
	tried := map[string]bool{"last": true}
	var last []byte // key of the previous entry
	for _, call := range calls {
		tried[call.entry] = true
		want := []byte{byte(codes[call.entry])}
		key := func() {
			shared := 0
			for shared < min(len(last), len(call.key)) && last[shared] == call.key[shared] {
				shared++
			}
			want = append(want, byte(shared), byte(len(call.key)-shared))
			want = append(want, call.key[shared:]...)
			last = call.key
		}
		list, _, _ := strings.Cut(fields[call.entry], ":") // the meaning follows the colon
		for field := range strings.SplitSeq(list, ", ") {
			switch {
			case field == "bound" && call.key == nil:
				want = append(want, 0)
			case field == "bound":
				want = append(want, 1)
				key()
			case field == "key" || field == "key of a record that the base has too":
				key()
			case field == "length of the value as a varint":
				want = binary.AppendUvarint(want, uint64(len(value)))
			case field == "value":
				want = append(want, value...)
			default:
				t.Fatalf("%s has a field %q", call.entry, field)
			}
		}
		out.Reset()
		require.NoError(t, call.write(call.key))
		require.NoError(t, c.w.Flush())
		require.Equal(t, want, out.Bytes(), call.entry)
	}
	out.Reset()
	require.Empty(t, fields["last"])
	require.NoError(t, c.Finish(Increment, base))
	require.Equal(t, byte(codes["last"]), out.Bytes()[0])
	require.Len(t, out.Bytes(), 1+MarkSize)
	require.Len(t, codes, len(tried))
	for entry := range codes {
		require.True(t, tried[entry], "no entry %q is written here", entry)
	}
}
