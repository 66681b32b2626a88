package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// longTexts returns values with lengths around the sizes of pieces, and with valid and invalid characters across
// the boundaries between pieces.
func longTexts() []string {
	var texts []string
	for _, part := range []string{"plain", "\u00e9", "\u65e5\u672c", "\U0001f600", "\xe6\x97", "\xff", "a\nb\t", "\u2028<&>\"\\", "x "} {
		for _, length := range []int{0, 1, 5, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3*pieceBytes + 2} {
			for shift := range 4 {
				text := strings.Repeat("s", shift) + strings.Repeat(part, length/len(part)+1)
				texts = append(texts, text[:min(len(text), length+shift)])
			}
		}
	}
	return append(texts, "", "\"q\"", " x", "\n", "\xf0\x9f")
}

// TestLongText: in each notation, a value that is read in pieces is printed like one that is in memory as a whole.
func TestLongText(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, value := range longTexts() {
		open := func() (io.ReadCloser, int64, error) {
			var r io.Reader = strings.NewReader(value)
			if random.IntN(4) == 0 && len(value) < 1000 {
				r = iotest.OneByteReader(r)
			} else if random.IntN(2) == 0 {
				r = iotest.DataErrReader(iotest.HalfReader(r))
			}
			return io.NopCloser(r), int64(len(value)), nil
		}
		written := func(write func(w *bufio.Writer) error) string {
			var out bytes.Buffer
			w := bufio.NewWriter(&out)
			require.NoError(t, write(w))
			require.NoError(t, w.Flush())
			return out.String()
		}
		for _, n := range []notation{{}, {hex: true}, {base64: true}} {
			require.Equal(t, n.format([]byte(value)), written(func(w *bufio.Writer) error { return n.writeLong(w, open) }))
			var want bytes.Buffer
			record := map[string]any{}
			n.addTo(record, "key", []byte("<k>"))
			n.addTo(record, "value", []byte(value))
			require.NoError(t, printJSON(&want, record))
			require.Equal(t, want.String(), written(func(w *bufio.Writer) error { return n.writeJSONRecord(w, []byte("<k>"), time.Time{}, open) }))
		}
		shown := value
		if !harmless([]byte(value)) {
			shown = strconv.Quote(value)
		}
		if !strings.HasSuffix(shown, "\n") {
			shown += "\n"
		}
		require.Equal(t, shown, written(func(w *bufio.Writer) error { return printForPerson(w, open) }))
	}
}

// TestLongValue: every command passes a long value on unchanged.
func TestLongValue(t *testing.T) {
	inTurn(t)
	t.Parallel()
	first := make([]byte, firstBytes+3<<20+5) // put opens the database before it has read the rest
	r := rand.NewChaCha8([32]byte{})
	r.Read(first)
	value := first[len(first)-3<<20-5:]
	db, other := newPath(t), newPath(t)
	for _, value := range [][]byte{first, value} {
		succeed(t, "put", db, "file", "--file", writeFile(t, string(value)))
		succeedWith(t, string(value), "put", db, "pipe")
		require.True(t, string(value) == succeed(t, "get", db, "file"))
		require.True(t, string(value) == succeed(t, "get", db, "pipe"))
	}
	short := string(value[:2<<20])
	succeedWith(t, short, "put", db, "short")
	for _, key := range []string{"file", "pipe"} {
		require.Equal(t, hex.EncodeToString(value)+"\n", succeed(t, "get", db, hex.EncodeToString([]byte(key)), "--hex"))
		var record map[string]string
		require.NoError(t, json.Unmarshal([]byte(succeed(t, "get", db, key, "--json")), &record))
		require.Equal(t, map[string]string{"key": key, "value_base64": base64.StdEncoding.EncodeToString(value)}, record)
	}
	require.Equal(t, fmt.Sprintf("file\t%s\npipe\t%[1]s\nshort\t%s\n", strconv.Quote(string(value)), strconv.Quote(short)), succeed(t, "list", db, "--values"))
	for _, form := range [][]string{nil, {"--print"}} {
		dump := succeed(t, append([]string{"dump", db}, form...)...)
		succeedWith(t, dump, "load", other)
		require.Equal(t, string(value), succeed(t, "get", other, "pipe"))
		require.Equal(t, dump, succeed(t, append([]string{"dump", other}, form...)...))
		require.JSONEq(t, fmt.Sprintf(`{"records": 3, "bytes": %d}`, 2*len(value)+len(short)+13),
			succeed(t, "load", other, "--json", "--file", writeFile(t, dump)))
		// Cut within the long value.
		failWith(t, dump[:len(dump)*3/4], exitError, []string{"cut short"}, "load", newPath(t))
	}
}

// TestTooLongFile: a file longer than the longest value is refused before it is read and before a database is
// created.
func TestTooLongFile(t *testing.T) {
	db, file := newPath(t), filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	if err := os.Truncate(file, maxValueBytes+1); err != nil {
		t.Skip("no files of that size here:", err)
	}
	fail(t, exitError, []string{"longer than 4 GiB", file}, "put", db, "k", "--file", file)
	in, err := os.Open(file)
	require.NoError(t, err)
	defer in.Close()
	r := finish(t, command(t, "put", db, "k"), in)
	require.Equal(t, exitError, r.code)
	require.Contains(t, r.stderr, "longer than 4 GiB")
	require.NoFileExists(t, db)
}
