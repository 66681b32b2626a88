package logstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"flashdbm/logstore/space"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// TestLoggedValuesAreUsedOnce: the target of a reference is in the file, in a page of redo records, and no
// other reference leads to it.
func TestLoggedValuesAreUsedOnce(t *testing.T) {
	x := newScript(t)
	s := x.s
	require.True(t, s.LogsValues())
	require.NoError(t, s.Reserve(8, true))
	g := s.Begin(RecordGroup)
	head := []byte("head")
	first, span := g.Record(head, make([]byte, 1000))
	require.Equal(t, 1, span)
	second, span := g.Record(head, []byte("the second value"))
	require.Equal(t, 1, span)
	require.Equal(t, first.Addr(), second.Addr())
	v, err := s.Logged(second, head, 16)
	require.NoError(t, err)
	require.Equal(t, "the second value", string(v), "before it is written")
	_, err = g.Commit(2)
	require.NoError(t, err)
	for range 2 { // before a sync and after it
		v, err = s.Logged(second, head, 16)
		require.NoError(t, err)
		require.Equal(t, "the second value", string(v))
		require.NoError(t, s.Sync())
	}
	require.EqualValues(t, 2, PageName(x.page(first.Addr())), "values in the mux area")

	_, err = s.Logged(second, []byte("tead"), 16)
	require.ErrorIs(t, err, ErrCorrupt, "of another key")

	used := s.NewUsedPages()
	require.NoError(t, s.UseLogged(used, first, head, 1000))
	require.NoError(t, s.UseLogged(used, second, head, 16))
	require.Equal(t, uint16(3), used.Logged(first.Addr()))
	require.ErrorIs(t, s.UseLogged(used, first, head, 1000), ErrCorrupt, "twice")
	require.ErrorIs(t, s.UseOnce(used, first.Addr(), 1), ErrCorrupt, "as a page of the tree")
	other := s.NewUsedPages()
	require.NoError(t, s.UseOnce(other, first.Addr(), 1))
	require.ErrorIs(t, s.UseLogged(other, first, head, 1000), ErrCorrupt, "a page of the tree")
	for name, place := range map[string]Place{
		"beyond the file": PlaceOf(1<<40, 0, 0), "no such value": PlaceOf(first.Addr(), 40, 2), "a superblock": PlaceOf(1, 0, 0),
		"in the mux area": Place(first.Addr()<<18 | 8<<4), "behind the page": PlaceOf(first.Addr(), BodySize-10, 0),
	} {
		require.ErrorIs(t, s.UseLogged(s.NewUsedPages(), place, head, 1000), ErrCorrupt, name)
	}

	g = s.Begin(RecordGroup)
	next, _ := g.Record(head, make([]byte, 1000))
	_, err = g.Commit(1)
	require.NoError(t, err)
	require.NoError(t, s.Sync())
	require.Equal(t, first.Addr()+1, next.Addr())
	require.NoError(t, s.UseLogged(s.NewUsedPages(), next, head, 1000))
	beyond := next - 1<<18 + PageSize<<4 // the same bytes, named as a place of the page before, which is not two pages long
	require.ErrorIs(t, s.UseLogged(s.NewUsedPages(), beyond, head, 1000), ErrCorrupt, "a value behind the pages of its own")
}

// TestTailPagesAreDropped: the memory for pages that no sync has covered is dropped with the sync of the last
// of them.
func TestTailPagesAreDropped(t *testing.T) {
	x := newScript(t)
	s := x.s
	require.NoError(t, s.Reserve(2000, true))
	tails := func() (n int) {
		for a := Addr(0); a < s.End(); a += 1 << 8 {
			if c, o := s.chunkOf(a); c != nil && c.sets().tail[o>>8].Load() != nil {
				n++
			}
		}
		return n
	}
	for range 1000 {
		g := s.Begin(RecordGroup)
		place, _ := g.Record([]byte("head"), make([]byte, 3000))
		_, err := g.Commit(1)
		require.NoError(t, err)
		_, err = s.Logged(place, []byte("head"), 3000)
		require.NoError(t, err)
	}
	require.Greater(t, tails(), 2)
	require.NoError(t, s.Sync())
	require.Zero(t, tails())
	require.Zero(t, s.UnsyncedBytes())
}

// spanRecord is a record of the span tests: its bytes say which one it is.
func spanRecord(i, n int) (head, value []byte) {
	value = make([]byte, n)
	for at := range value {
		value[at] = byte(i + at*7)
	}
	return fmt.Appendf(nil, "head%04d", i), value
}

// writeSpans logs values of the given sizes, each in its own group, and returns their places and the lengths of
// the spans by page.
func writeSpans(t *testing.T, s *Store, sizes ...int) (places []Place, spans map[Addr]int) {
	spans = map[Addr]int{}
	require.NoError(t, s.Reserve(int64(len(sizes))+1, true))
	g := s.Begin(RecordGroup)
	for i, n := range sizes {
		head, value := spanRecord(i, n)
		place, span := g.Record(head, value)
		places, spans[place.Addr()] = append(places, place), span
		got, err := s.Logged(place, head, n)
		require.NoError(t, err)
		require.Equal(t, value, got, "in memory")
	}
	_, err := g.Commit(uint64(len(sizes)))
	require.NoError(t, err)
	return places, spans
}

func requireSpans(t *testing.T, s *Store, places []Place, sizes ...int) {
	for i, n := range sizes {
		head, value := spanRecord(i, n)
		got, err := s.Logged(places[i], head, n)
		require.NoError(t, err, i)
		require.Equal(t, value, got, i)
	}
}

func repeated(n, times int) (all []int) {
	for range times {
		all = append(all, n)
	}
	return all
}

// TestSpans: records of about a third of a page follow each other in up to four pages of the file, and are read
// as they were written: in memory, after the sync, and after another open. Each value is read whole, or is an
// error.
func TestSpans(t *testing.T) {
	for _, c := range []struct {
		size, times int
		spans       []int // of the pages in order
	}{
		{1000, 33, []int{4, 4, 1}}, {1000, 5, []int{2}}, {300, 40, []int{1, 1, 1, 1}}, {500, 33, []int{2, 2, 1}}, {1990, 9, []int{4, 1}}, {256, 33, []int{1, 1, 1}}, {600, 27, []int{2, 2, 1}},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.times, c.size), func(t *testing.T) {
			x := newScriptOf(t, 64)
			s := x.s
			require.True(t, s.LogsValues())
			sizes := repeated(c.size, c.times)
			places, spans := writeSpans(t, s, sizes...)
			var got []int
			total := 0
			for _, a := range slices.Sorted(maps.Keys(spans)) {
				got = append(got, spans[a])
				total += spans[a]
			}
			require.Equal(t, c.spans, got)
			require.EqualValues(t, total*PageSize, s.UnsyncedBytes())
			requireSpans(t, s, places, sizes...)
			require.NoError(t, s.Sync())
			require.Zero(t, s.UnsyncedBytes())
			requireSpans(t, s, places, sizes...)
			used := s.NewUsedPages()
			for i := range places {
				head, _ := spanRecord(i, c.size)
				require.NoError(t, s.UseLogged(used, places[i], head, c.size))
			}
			for a, span := range spans {
				for i := range span {
					require.True(t, used.Has(a+Addr(i)))
				}
				body, err := s.RecordPage(a)
				require.NoError(t, err)
				require.Len(t, body, span*PageSize-MuxSize)
			}
			values, pages := space.PackedSpan(int32(c.size + 8))
			if c.times >= int(values) {
				require.Equal(t, c.spans[0], int(pages), "as full as cleaning counts it")
				require.EqualValues(t, values, countAt(places, places[0].Addr()))
			}
		})
	}
}

func countAt(places []Place, a Addr) (n int) {
	for _, p := range places {
		if p.Addr() == a {
			n++
		}
	}
	return n
}

// TestSpansAreScanned: an open finds the spans of several pages. A span with a damaged raw page ends the log.
func TestSpansAreScanned(t *testing.T) {
	for damaged := range 4 { // 0: none; else a raw page of the second span
		x := newScriptOf(t, 64)
		sizes := repeated(1000, 33)
		places, _ := writeSpans(t, x.s, sizes...)
		x.sync()
		if damaged > 0 {
			x.poke(places[16].Addr()+Addr(damaged), 2000)
		}
		x.kill()
		x.open()
		var found []ScannedPage
		for _, g := range x.rec.Groups {
			for _, p := range g.Pages {
				if p.Values > 0 {
					found = append(found, p)
				}
			}
		}
		if damaged > 0 {
			require.Empty(t, found)
			continue
		}
		page := func(i, span, values int) ScannedPage {
			return ScannedPage{Addr: places[i].Addr(), Kind: KindRecord, Run: int64(span), Values: values}
		}
		require.Equal(t, []ScannedPage{page(0, 4, 16), page(16, 4, 16), page(32, 1, 1)}, found)
		requireSpans(t, x.s, places, sizes...)
		stream, err := x.s.AppendBodies(nil, found, KindRecord)
		require.NoError(t, err)
		var bodies []byte
		for _, p := range found {
			b, err := x.s.Body(p)
			require.NoError(t, err)
			require.Len(t, b, p.BodyBytes())
			bodies = append(bodies, b...)
		}
		require.Equal(t, bodies, stream)
	}
}

// TestSpansEndWithTheirSegment: no page of records continues in another segment.
func TestSpansEndWithTheirSegment(t *testing.T) {
	x := newScript(t)
	sizes := repeated(1000, 200)
	places, spans := writeSpans(t, x.s, sizes...)
	x.sync()
	cut := 0
	for a, span := range spans {
		require.Equal(t, x.s.segmentOf(a), x.s.segmentOf(a+Addr(span)-1))
		if span < MaxSpan {
			cut++
		}
	}
	require.Greater(t, cut, 5)
	requireSpans(t, x.s, places, sizes...)
	x.kill()
	x.open()
	requireSpans(t, x.s, places, sizes...)
}

// TestDamagedSpan: no value is returned from a page of records with a damaged raw page, even if the value lies
// elsewhere in it. Impossible names are damage.
func TestDamagedSpan(t *testing.T) {
	for damaged := range MaxSpan {
		x := newScriptOf(t, 64)
		sizes := repeated(1000, 15)
		places, _ := writeSpans(t, x.s, sizes...)
		a := places[0].Addr()
		x.s.BearLogged(a, MaxSpan, 1<<15-1, 15000, 1)
		x.checkpoint()
		x.checkpoint()
		x.poke(a+Addr(damaged), 2000)
		x.kill()
		x.open()
		for i, n := range sizes {
			head, _ := spanRecord(i, n)
			_, err := x.s.Logged(places[i], head, n)
			require.ErrorIs(t, err, ErrCorrupt)
		}
	}
	x := newScriptOf(t, 64)
	require.NoError(t, x.s.Reserve(100, true))
	last := x.s.firstPage(1) - 1
	for name, c := range map[string]struct {
		a    Addr
		name PageID
		want uint64
	}{
		"one page": {last, 16, 1}, "two": {last - 1, 1 | 1<<8 | 7<<32, 2}, "beyond the segment": {last, 1 | 1<<8, 0}, "too long": {last - 10, 1 | MaxSpan<<8, 0},
		"no value": {last - 10, 1 << 8, 0}, "too many values": {last - 10, MaxLogged + 1, 0}, "a checksum of nothing": {last - 10, 1 | 1<<32, 0}, "what is zero": {last - 10, 1 | 1<<16, 0},
		"beyond the file": {x.s.End() - 1, 1 | 1<<8, 0},
	} {
		require.Equal(t, c.want, x.s.spanOf(c.a, c.name), name)
	}
}

// TestValueBehindASpan: a reference that claims a value longer than its page is damage, whatever follows the
// page.
func TestValueBehindASpan(t *testing.T) {
	x := newScriptOf(t, 64)
	places, spans := writeSpans(t, x.s, 1000, 1000, 1000)
	require.Equal(t, 1, spans[places[0].Addr()])
	x.append(3)
	for range 2 {
		head, _ := spanRecord(2, 1000)
		x.sync()
		requireSpans(t, x.s, places, 1000, 1000, 1000)
		_, err := x.s.Logged(places[2], head, 2100)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorIs(t, x.s.UseLogged(x.s.NewUsedPages(), places[2], head, 2100), ErrCorrupt)
		x.kill()
		x.open()
	}
}

// TestRawPagesVouchForNothing: values in a raw page may hold any bytes. Even with the correct checksum of a
// page it is not a page.
func TestRawPagesVouchForNothing(t *testing.T) {
	x := newScriptOf(t, 64)
	x.append(1)
	const record, values = 1000, 12
	stream := bytes.Repeat([]byte("v"), values*record)
	require.NoError(t, x.s.Reserve(3, true))
	g := x.s.Begin(RecordGroup)
	page := stream[BodySize : BodySize+PageSize]
	a := x.end() + 1
	salt, ok := x.s.space.SaltOf(a)
	require.True(t, ok)
	m := mux{kind: KindTree, flags: uint8(PageGroup)<<groupKindAt | flagLast, name: BornBit | 1, group: x.s.LastGroup() + 100, pages: 1, count: 1}
	m.put(page)
	binary.LittleEndian.PutUint32(page, pageCRC(salt, a, page))
	for i := range values {
		r := stream[i*record : (i+1)*record]
		place, span := g.Record(r[:4], r[4:])
		require.Equal(t, a-1, place.Addr())
		require.Equal(t, 1+i/4, span)
	}
	want, err := g.Commit(values)
	require.NoError(t, err)
	x.sync()
	x.crash(vfs.KeepAll)
	x.open()
	require.Equal(t, want, x.s.LastGroup())
}

// TestLoggedBehindALongRecord: a long record without a logged value continues in the next page, and a short one
// is not split. No page that begins in the middle of a record has a logged value.
func TestLoggedBehindALongRecord(t *testing.T) {
	x := newScriptOf(t, 64)
	s := x.s
	require.NoError(t, s.Reserve(20, true))
	g := s.Begin(RecordGroup)
	record := func() Addr {
		head, value := spanRecord(0, 300)
		place, _ := g.Record(head, value)
		return place.Addr()
	}
	pages := func(n int) int64 {
		g.Append(make([]byte, n))
		return g.Pages()
	}
	first := record()
	require.EqualValues(t, 1, pages(BodySize-308-100), "100 bytes are left")
	require.EqualValues(t, 2, pages(shortRecord+1), "of which it has the first")
	require.Equal(t, first+2, record(), "behind what a page begins with")
	require.EqualValues(t, 3, pages(BodySize-308-100))
	require.EqualValues(t, 4, pages(shortRecord), "it begins the page")
	require.Equal(t, first+3, record())
	require.EqualValues(t, 7, pages(3*BodySize-300))
	require.EqualValues(t, 7, pages(shortRecord))
	require.Equal(t, first+7, record())
	_, err := g.Commit(0)
	require.NoError(t, err)
}
