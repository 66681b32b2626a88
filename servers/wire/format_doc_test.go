package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"flashdbm/internal/formatdoc"

	"github.com/stretchr/testify/require"
)

// These tests compare docs/wire.md with the code.

func TestFormatGreeting(t *testing.T) {
	l := formatdoc.OpenNamed(t, "wire.md").Layout("Greeting", nil)
	l.Check(func(field string, v []byte) ([]byte, bool) {
		g := greeting{}
		switch field {
		case "carrier":
			g.carrier = Carrier(v[0])
		case "salt":
			g.salt = le.Uint64(v)
		case "key":
			g.key = parseKey(v)
		default:
			return nil, false
		}
		return g.append(nil), true
	})
	require.Equal(t, greetingSize, l.End())
	require.Equal(t, greetingMagic, l.Field("magic").Constraint)
	require.Equal(t, fmt.Sprint(Version), l.Field("version").Constraint)
	b := (&greeting{}).append(nil)
	require.Equal(t, greetingMagic, string(l.Field("magic").In(b)))
	require.EqualValues(t, Version, le.Uint16(l.Field("version").In(b)))
}

func TestFormatFrame(t *testing.T) {
	l := formatdoc.OpenNamed(t, "wire.md").Layout("Frame", map[string]int{"n": 5, "p": 3})
	encode := func(field string, v []byte) ([]byte, bool) {
		var h Header
		var number uint64
		var credit uint32
		body := make([]byte, 5)
		switch field {
		case "op":
			h.Op = v[0]
		case "flags":
			h.Flags = v[0]
		case "status":
			h.Status = le.Uint16(v)
		case "number":
			number = le.Uint64(v)
		case "request":
			h.Request = le.Uint64(v)
		case "credit":
			credit = le.Uint32(v)
		case "map version":
			h.MapVersion = le.Uint32(v)
		case "body":
			copy(body, v)
		default:
			return nil, false
		}
		b := bytes.Repeat([]byte{0xEE}, 100)
		copy(b[headSize:], body)
		return seal(b, &h, 5, number, credit, 9), true
	}
	l.Check(encode)
	require.Equal(t, frameSize(5), l.End())
	b, _ := encode("op", []byte{1})
	require.EqualValues(t, 5, le.Uint32(l.Field("size").In(b)))
	require.Contains(t, l.Field("size").Constraint, "16,384")
	require.Equal(t, 16384, MaxInline)
}

func TestFormatReference(t *testing.T) {
	l := formatdoc.OpenNamed(t, "wire.md").Layout("Reference", nil)
	l.Check(func(field string, v []byte) ([]byte, bool) {
		var r reference
		switch field {
		case "key":
			r.key = parseKey(v)
		case "offset":
			r.offset = le.Uint64(v)
		case "length":
			r.length = le.Uint64(v)
		case "hash":
			r.hash = le.Uint64(v)
		case "number":
			r.number = le.Uint64(v)
		}
		return r.append(nil), true
	})
	require.Equal(t, refSize, l.End())
	require.Equal(t, "at most 4,325,376", l.Field("length").Constraint)
	require.Equal(t, 4325376, MaxBody)
}

func TestFormatControlAreaAndOps(t *testing.T) {
	d := formatdoc.OpenNamed(t, "wire.md")
	require.Equal(t, map[string]uint64{"consumed": wordCredit, "armed": wordArmed, "bell": wordBell, "landed": wordLanded}, d.Table("Control area").Numbers("field", "offset"))
	require.Equal(t, map[string]uint64{"credit": opCredit, "skip": opSkip}, d.Table("Ops of the framing").Numbers("name", "op"))
	require.EqualValues(t, 0xF0, OpReserved)
	require.EqualValues(t, 1<<7, flagBulk)
	require.Equal(t, 65536, RingSize)
}

// TestEveryTableIsChecked looks for the heading of each table in the tests that compare the document with the code.
func TestEveryTableIsChecked(t *testing.T) {
	var tests strings.Builder
	for _, name := range []string{"format_doc_test.go", "../hydra/protocol/format_doc_test.go", "../ramp/protocol/format_doc_test.go"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		tests.Write(text)
	}
	d := formatdoc.OpenNamed(t, "wire.md")
	require.Greater(t, len(d.Tables), 18)
	for _, table := range d.Tables {
		require.Contains(t, tests.String(), strconv.Quote(table.Heading), "no test reads the table")
	}
}

// TestFormatExample decodes the bytes of the example and encodes them again, and compares both with the example.
func TestFormatExample(t *testing.T) {
	want, err := hex.DecodeString(strings.Join(strings.Fields(formatdoc.OpenNamed(t, "wire.md").Block("Example of a frame")), ""))
	require.NoError(t, err)
	const salt = 0x1122334455667788
	h := Header{Op: 1, Flags: 1, Request: 7, MapVersion: 1}
	b := make([]byte, 100)
	copy(b[headSize:], "key")
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(seal(b, &h, 3, 2, 64, salt)))
	m, credit, ok := unseal(want, 2, salt)
	require.True(t, ok)
	require.Equal(t, Message{Header: h, Body: []byte("key")}, m)
	require.EqualValues(t, 64, credit)
	for i := range want { // changing any byte has an effect
		other := bytes.Clone(want)
		other[i]++
		_, _, ok := unseal(other, 2, salt)
		require.False(t, ok, "byte %d", i)
	}
}
