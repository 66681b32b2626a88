package mvcc

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"flashdbm/internal/formatdoc"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// countingReader yields 1, 2, 3 and so on in place of random bytes.
type countingReader struct{ last byte }

func (r *countingReader) Read(p []byte) (int, error) {
	for i := range p {
		r.last++
		p[i] = r.last
	}
	return len(p), nil
}

// exampleFile makes the database of docs/format.md and returns the bytes of its file.
func exampleFile(t *testing.T) []byte {
	random := rand.Reader
	rand.Reader = &countingReader{}
	defer func() { rand.Reader = random }()

	mem := vfs.NewMem(0)
	defer mem.Release()
	e, err := Open(mem, "example.fdbm", Options{
		Store:  logstore.Options{ChunkPages: logstore.DefaultSegmentPages},
		Manual: true, MemoryLimit: 1 << 20, RedoLimit: 1 << 20,
	})
	require.NoError(t, err)
	commit := func(change func(tx *Tx) error) {
		tx, err := e.Begin(TxOptions{})
		require.NoError(t, err)
		require.NoError(t, change(tx))
		require.NoError(t, tx.Commit())
	}
	commit(func(tx *Tx) error { return tx.Put([]byte("apple"), []byte("red")) })
	commit(func(tx *Tx) error { return tx.Put([]byte("cherry"), []byte(strings.Repeat("c", 4100))) })
	commit(func(tx *Tx) error { return tx.Delete([]byte("cherry")) })
	require.NoError(t, e.Checkpoint())
	require.NoError(t, e.Close())

	f, err := mem.Open("example.fdbm", os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	image := make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(f, 0, size), image)
	require.NoError(t, err)
	return image
}

// dump formats an image like "hexdump -C": 16 bytes per line, and a star for lines equal to the one before.
func dump(image []byte) string {
	var b strings.Builder
	before, starred := "", false
	for at := 0; at < len(image); at += 16 {
		line := image[at:min(at+16, len(image))]
		if string(line) == before {
			if !starred {
				b.WriteString("*\n")
			}
			starred = true
			continue
		}
		before, starred = string(line), false
		text := []byte(before)
		for i, c := range text {
			if c < ' ' || c > '~' {
				text[i] = '.'
			}
		}
		digits := hex.EncodeToString(line)
		fmt.Fprintf(&b, "%08x ", at)
		for i := range line {
			if i == 8 {
				b.WriteByte(' ')
			}
			b.WriteString(" " + digits[2*i:2*i+2])
		}
		fmt.Fprintf(&b, "  |%s|\n", text)
	}
	fmt.Fprintf(&b, "%08x\n", len(image))
	return b.String()
}

// TestFormatExample compares the worked example with the file that the engine writes.
func TestFormatExample(t *testing.T) {
	got := dump(exampleFile(t))
	if want := formatdoc.Open(t).Block("Worked example"); got != want {
		t.Errorf("the example of docs/format.md is\n%s\nthe file is\n%s", want, got)
	}
}
