package override

import (
	"encoding/binary"
	"slices"
	"testing"

	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// tableBytes encodes a translation table: the given words after its head.
func tableBytes(base, born, records uint64, entries ...uint64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, base)
	b = le.AppendUint64(b, born)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, Root)
	b = le.AppendUint64(b, records)
	b = le.AppendUint64(b, uint64(len(entries)/2))
	for _, w := range entries {
		b = le.AppendUint64(b, w)
	}
	return b
}

func TestTableHead(t *testing.T) {
	good := tableBytes(9, 7, 5, Root, 20, 33, 44)
	r := &reader{b: good}
	h, err := getTableHead(r)
	require.NoError(t, err)
	require.Equal(t, tableHead{base: 9, redo: 9, born: 7, records: 5, entries: 2}, h)
	require.Len(t, r.b, 32)

	h, err = getTableHead(&reader{b: append(slices.Clone(good), 2, 0, 0, 0, 0, 0, 0, 0)})
	require.NoError(t, err)
	require.Equal(t, tableHead{base: 9, redo: 7, born: 7, records: 5, entries: 2}, h)

	require.Len(t, tableBytes(0, 0, 0), tableFixed)
	for n := range good {
		_, err := getTableHead(&reader{b: good[:n]})
		require.ErrorIs(t, err, logstore.ErrCorrupt, "cut to %d bytes", n)
	}
	change := func(at int, v uint64) []byte {
		b := append([]byte(nil), good...)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	for what, b := range map[string][]byte{
		"bytes behind":     append(append([]byte(nil), good...), 0),
		"none behind":      append(append([]byte(nil), good...), 0, 0, 0, 0, 0, 0, 0, 0),
		"more behind":      append(append([]byte(nil), good...), 10, 0, 0, 0, 0, 0, 0, 0),
		"counter":          change(8, maxBorn+1),
		"two trees":        change(16, (Root&(1<<32-1))<<32|2),
		"another root":     change(20, Root+1),
		"negative records": change(28, 1<<63),
		"entries":          change(36, 1<<60),
	} {
		_, err := getTableHead(&reader{b: b})
		require.ErrorIs(t, err, logstore.ErrCorrupt, what)
	}
}

func TestReader(t *testing.T) {
	r := &reader{b: []byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9}}
	require.EqualValues(t, 1, r.u32())
	require.EqualValues(t, 2, r.u64())
	require.False(t, r.short)
	require.Zero(t, r.u32())
	require.True(t, r.short)
	require.Zero(t, r.u64())

	r = &reader{b: make([]byte, 32)}
	require.Equal(t, 2, r.count(2, 16))
	require.False(t, r.short)
	require.Zero(t, r.count(3, 16))
	require.True(t, r.short)
	require.Zero(t, (&reader{b: make([]byte, 32)}).count(1<<63, 8))
}

// putFlushEnd encodes what getFlushEnd decoded.
func putFlushEnd(end flushEnd) []byte {
	f := &Flush{p: &Pages{}, base: end.base, redo: end.redo, first: end.first, records: end.records, dying: end.dying}
	f.p.born.Store(end.born)
	for _, r := range end.retired {
		f.retired = append(f.retired, retirement{entry: &entry{id: r.id}, addr: r.addr})
	}
	for _, id := range end.removed {
		f.removed = append(f.removed, &entry{id: id})
	}
	return f.stream()
}

func TestFlushEnd(t *testing.T) {
	want := flushEnd{
		base: 4, redo: 3, first: 6, born: 12, records: 99, retired: []retiredName{{7, 70}, {logstore.BornBit | 3, 71}},
		removed: []logstore.PageID{8}, dying: []Extent{{100, 3}, {200, 255}},
	}
	good := putFlushEnd(want)
	padded := append(append([]byte(nil), good...), make([]byte, 50)...)
	for _, b := range [][]byte{good, padded} {
		got, err := getFlushEnd(b, 8)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	whole := len(good) - behindSize
	for n := range good {
		got, err := getFlushEnd(good[:n], 8)
		if n == whole {
			require.NoError(t, err)
			require.Equal(t, got.base, got.redo, "as it was written before there were others")
			continue
		}
		require.ErrorIs(t, err, logstore.ErrCorrupt, "cut to %d bytes", n)
	}
	for what, change := range map[string]func(*flushEnd){
		"base in its own parts":  func(e *flushEnd) { e.base = e.first },
		"first part behind last": func(e *flushEnd) { e.first = 9 },
		"counter":                func(e *flushEnd) { e.born = maxBorn + 1 },
		"redo behind the base":   func(e *flushEnd) { e.redo = 5 },
		"negative records":       func(e *flushEnd) { e.records = -1 },
	} {
		bad := want
		change(&bad)
		_, err := getFlushEnd(putFlushEnd(bad), 8)
		require.ErrorIs(t, err, logstore.ErrCorrupt, what)
	}
	padded[len(padded)-1] = 1
	_, err := getFlushEnd(padded, 8)
	require.ErrorIs(t, err, logstore.ErrCorrupt, "bytes behind")
}

func FuzzTableHead(f *testing.F) {
	f.Add(tableBytes(9, 7, 5, Root, 20, 33, 44))
	f.Add(tableBytes(1, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &reader{b: b}
		h, err := getTableHead(r)
		if err != nil {
			require.ErrorIs(t, err, logstore.ErrCorrupt)
			return
		}
		require.Equal(t, b, append(tableBytes(h.base, h.born, uint64(h.records), make([]uint64, 2*h.entries)...)[:tableFixed], r.b...))
	})
}

func FuzzFlushEnd(f *testing.F) {
	f.Add(putFlushEnd(flushEnd{base: 4, first: 6, born: 12, records: 99}), uint64(9))
	f.Add(putFlushEnd(flushEnd{first: 1, retired: []retiredName{{7, 70}}, removed: []logstore.PageID{8}, dying: []Extent{{100, 3}}}), uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, group uint64) {
		end, err := getFlushEnd(b, group)
		if err != nil {
			require.ErrorIs(t, err, logstore.ErrCorrupt)
			return
		}
		out := putFlushEnd(end)
		require.Equal(t, b[:len(out)], out)
	})
}
