package mvcc

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"flashdbm/internal/btree"
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
		Manual: true, MemoryLimit: 1 << 20, RedoLimit: 1 << 20, Logger: slog.New(slog.DiscardHandler),
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

// dump writes an image as "hexdump -C" does: 16 bytes a line, a star for lines like the one before.
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

// TestFormatRedoRecords writes each kind of redo record by its row in docs/format.md and compares that with the encoder and the decoder.
func TestFormatRedoRecords(t *testing.T) {
	long := bytes.Repeat([]byte("k"), btree.MaxInlineKey+1)
	ops := map[string]btree.Op{
		"put":                       {Key: []byte("key"), Value: bytes.Repeat([]byte("v"), 300)},
		"delete":                    {Key: []byte("key"), Delete: true},
		"put of a value in a run":   {Key: long, Ref: &btree.Ref{ID: 0x1122334455667788, ValueLen: 1 << 20, KeyLen: uint32(len(long)), Kind: btree.Run}},
		"put of a value in extents": {Key: []byte("key"), Ref: &btree.Ref{ID: 9, ValueLen: 1 << 32, Kind: btree.Extents}},
	}
	table := formatdoc.Open(t).Table("Redo records")
	fields := table.Map("record", "fields behind the code")
	codes := table.Numbers("record", "code")
	require.Equal(t, uint64(redoEnd), codes["end"])
	require.Equal(t, uint64(redoLogged), codes["put of a logged value"])
	require.Equal(t, fields["put"], fields["put of a logged value"])
	require.Len(t, codes, len(ops)+2)
	for record, op := range ops {
		want := []byte{byte(codes[record])}
		for field := range strings.SplitSeq(fields[record], ", ") {
			switch field {
			case "key length varint":
				want = binary.AppendUvarint(want, uint64(len(op.Key)))
			case "value length varint":
				length := uint64(len(op.Value))
				if op.Ref != nil {
					length = op.Ref.ValueLen
				}
				want = binary.AppendUvarint(want, length)
			case "key":
				want = append(want, op.Key...)
			case "value":
				want = append(want, op.Value...)
			case "address":
				want = binary.LittleEndian.AppendUint64(want, op.Ref.ID)
			default:
				t.Errorf("field %q of %s", field, record)
			}
		}
		require.Equal(t, want, appendRedo(nil, &op), record)
		var got []btree.Op
		require.NoError(t, readRedo(append(want, make([]byte, 10)...), func(op btree.Op) { got = append(got, op) }))
		require.Equal(t, []btree.Op{op}, got, record)
	}
	for _, reserved := range []byte{5, 1 << 6, 1<<6 | redoPut, 1 << 7, 1<<7 | redoPut} {
		require.ErrorIs(t, readRedo([]byte{reserved, 0, 0, 0}, func(btree.Op) {}), errRedo, "code %#x", reserved)
	}
}

// TestFormatLayers compares the codes of layers, and of the redo records that name them, with docs/format.md, and what is written with
// what is read.
func TestFormatLayers(t *testing.T) {
	doc := formatdoc.Open(t)
	require.Equal(t, map[string]uint64{
		"put": layerPut, "delete": layerDelete, "put of a value in a run": layerRun, "put of a value in extents": layerList,
		"delete of a long key": layerLong,
	}, doc.Table("Layer entries").Numbers("layer entry", "code"))
	require.Equal(t, map[string]uint64{"layer": redoLayer, "owned": redoOwned, "lost": redoLost},
		doc.Table("Redo of layers").Numbers("layer record", "code"))

	lost := btree.Ref{Kind: btree.Extents, KeyLen: 2000, ValueLen: 1 << 31, ID: 99}
	b := appendRedoLayer(nil, []logstore.Addr{7, 1 << 40})
	b = appendRedoOwned(b, 12, 345)
	b = appendRedoLost(b, &lost)
	for cut := range b {
		err := readRedoStream(b[:cut], func(btree.Op) { t.Error("an op") }, func(redoLayers) {})
		if cut != 0 && cut != 18 && cut != 29 { // between two records
			require.ErrorIs(t, err, errRedo, "%d bytes", cut)
		}
	}
	var got []redoLayers
	require.NoError(t, readRedoStream(append(b, 0, 0), func(btree.Op) { t.Error("an op") }, func(x redoLayers) { got = append(got, x) }))
	require.Equal(t, []redoLayers{
		{layer: []logstore.Addr{7, 1 << 40}}, {drop: &btree.Ref{Kind: btree.Run, ID: 12, ValueLen: 345}}, {drop: &lost},
	}, got)
	require.ErrorIs(t, readRedo(b, func(btree.Op) {}), errHasLayers)
}

// TestFormatLayerPage compares a page of a layer with docs/format.md.
func TestFormatLayerPage(t *testing.T) {
	require.Equal(t, []string{"0", "2", "4096 - 2n"}, formatdoc.Open(t).Table("Layer").Column("offset"))
	e := newEngine(t, Options{Manual: true})
	w := newLayerWriter(e.store, logstore.ForWrites)
	for _, r := range []layerRecord{
		{code: layerPut, key: []byte("a"), keyLen: 1, value: []byte("one")}, {code: layerDelete, key: []byte("bb"), keyLen: 2},
		{code: layerRun, key: []byte("c"), keyLen: 1, valLen: 300, addr: 77},
	} {
		require.NoError(t, w.add(&r, r.key))
	}
	l, err := w.finish()
	require.NoError(t, err)
	defer l.private.Discard()
	p := l.page(0)
	records := "\x01\x01\x03aone" + "\x02\x02bb" + "\x03\x01\xac\x02\x4d\x00\x00\x00\x00\x00\x00\x00c"
	require.Equal(t, "\x03\x00"+records, string(p[:2+len(records)]))
	require.Equal(t, []byte{13, 0, 9, 0, 2, 0}, p[4096-6:])
	require.Empty(t, bytes.Trim(p[2+len(records):4096-6], "\x00"))
}
