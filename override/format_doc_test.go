package override

import (
	"encoding/binary"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/internal/formatdoc"
	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// These tests compare docs/format.md with the code: a table in the document that differs from what the code
// writes fails a test.

var le = binary.LittleEndian

func TestFormatFlushStream(t *testing.T) {
	d := formatdoc.Open(t)
	tree, retired, death := d.Layout("Tree entry", nil), d.Layout("Retired name", nil), d.Layout("Death entry", nil)
	l := d.Layout("Flush stream", map[string]int{"t": 1, "r": 2, "m": 3, "d": 4})
	stream := func(field string, v []byte) ([]byte, bool) {
		f := &Flush{p: &Pages{}, retired: make([]retirement, 2), removed: make([]*entry, 3), dying: make([]Extent, 4)}
		for i := range f.retired {
			f.retired[i].entry = &entry{}
		}
		for i := range f.removed {
			f.removed[i] = &entry{}
		}
		switch field {
		case "base":
			f.base, f.redo = le.Uint64(v), le.Uint64(v)
		case "behind":
			f.redo = -le.Uint64(v)
		case "first part":
			f.first = le.Uint64(v)
		case "born":
			f.p.born.Store(le.Uint64(v))
		case "retired names":
			for i := range f.retired {
				at := v[i*retired.End():]
				f.retired[i].entry.id, f.retired[i].addr = le.Uint64(retired.Field("name").In(at)), le.Uint64(retired.Field("address").In(at))
			}
		case "removed names":
			for i := range f.removed {
				f.removed[i].id = le.Uint64(v[8*i:])
			}
		case "death entries":
			for i := range f.dying {
				at := v[i*death.End():]
				f.dying[i] = Extent{le.Uint64(death.Field("address").In(at)), int64(le.Uint32(death.Field("pages").In(at)))}
			}
		default:
			return nil, false
		}
		return f.stream(), true
	}
	l.Check(stream)
	require.Equal(t, []int{retiredSize, deathSize}, []int{retired.End(), death.End()})

	b, _ := stream("base", make([]byte, 8))
	require.Len(t, b, l.End())
	for field, want := range map[string]uint32{"trees": 1, "retired": 2, "removed": 3, "deaths": 4} {
		require.Equal(t, want, le.Uint32(l.Field(field).In(b)), field)
	}
	f := &Flush{p: &Pages{}, records: 0x1122334455667788}
	entries := d.Layout("Flush stream", map[string]int{"t": 1, "r": 0, "m": 0, "d": 0}).Field("tree entries").In(f.stream())
	require.Equal(t, Root, le.Uint64(tree.Field("root").In(entries)))
	require.EqualValues(t, f.records, le.Uint64(tree.Field("records").In(entries)))
}

func TestFormatTranslationTable(t *testing.T) {
	d := formatdoc.Open(t)
	tree, one := d.Layout("Tree entry", nil), d.Layout("Table entry", nil)
	l := d.Layout("Translation table", map[string]int{"t": 1, "e": 1})
	encode := func(field string, v []byte) ([]byte, bool) {
		p := &Pages{names: names{table: newTable(1)}}
		e, _ := newEntry(0)
		e.disk = 1
		switch field {
		case "base":
			p.base, p.redo = le.Uint64(v), le.Uint64(v)
		case "behind":
			p.redo = -le.Uint64(v)
		case "born":
			p.born.Store(le.Uint64(v))
		case "table entries":
			e, _ = newEntry(le.Uint64(one.Field("name").In(v)))
			e.disk = le.Uint64(one.Field("address").In(v))
			e.disk = max(e.disk, 1) // an entry without an address is not written
		default:
			return nil, false
		}
		p.table.insert(e)
		b := p.EncodeTable()
		if field != "behind" || p.redo == 0 {
			require.Len(t, b, l.End()-behindSize, "it is left out")
			b = append(b, make([]byte, behindSize)...)
		}
		return b, true
	}
	b, _ := encode("base", make([]byte, 8))
	require.Len(t, b, l.End())
	require.EqualValues(t, 1, le.Uint32(l.Field("trees").In(b)))
	require.EqualValues(t, 1, le.Uint64(l.Field("entries").In(b)))
	require.Equal(t, Root, le.Uint64(tree.Field("root").In(l.Field("tree entries").In(b))))
	l.Check(encode)

	p := &Pages{names: names{table: newTable(1)}, installed: installed{baseRecords: 0x1122334455667788}}
	entries := l.Field("tree entries").In(p.EncodeTable())
	require.EqualValues(t, p.baseRecords, le.Uint64(tree.Field("records").In(entries)))

	le.PutUint64(l.Field("born").In(b), 1<<62)
	_, err := getTableHead(&reader{b: b})
	require.ErrorIs(t, err, logstore.ErrCorrupt, "a counter that does not fit a born name")
}

func TestFormatNames(t *testing.T) {
	names := formatdoc.Open(t).Table("Names").Map("name", "bits 63 and 62")
	top := func(id logstore.PageID) string {
		return string([]byte{'0' + byte(id>>63), '0' + byte(id>>62&1)})
	}
	p := newPages(&logstore.Store{}, nil, btree.NewMemory(), 0)
	b := p.Begin(1)
	require.Equal(t, map[string]string{
		"address": top(7), "born name": top(b.New()), "root name": top(Root),
	}, names)
	require.EqualValues(t, 1, Root&^(3<<62), "the id of the default tree")
	require.True(t, logstore.IsAddr(7))
	require.False(t, logstore.IsAddr(Root))
}
