package space

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/formatdoc"
	"flashdbm/logstore/format"
)

// le is the byte order of the file.
var le = binary.LittleEndian

func TestFormatSpaceMap(t *testing.T) {
	d := formatdoc.Open(t)
	head := d.Layout("Space map", nil)
	const pages = 128
	words := (pages + 63) / 64
	l := d.Layout("Space map entry", map[string]int{"w": words, "v": pages, "m": 1, "r": words})
	l.Check(func(field string, v []byte) ([]byte, bool) {
		sp := New(pages, 0, nil)
		sp.extendTo(1)
		g := &sp.segments[0]
		g.logged = &loggedValues{values: 1, masks: make([]uint16, pages), raw: make(bitmap, sp.words)}
		g.live, g.liveMap = 1, make(bitmap, sp.words) // so that the live map and the masks are there
		switch field {
		case "state":
			g.state = segmentState(v[0])
		case "salt":
			g.salt = le.Uint64(v)
		case "sequence":
			g.sequence = le.Uint64(v)
		case "last group":
			g.written = le.Uint64(v)
		case "live map":
			g.liveMap = format.U64s(v, sp.words)
		case "masks":
			for i := range g.logged.masks {
				g.logged.masks[i] = le.Uint16(v[2*i:])
			}
		case "mean":
			g.logged.mean = int32(le.Uint16(v))
		case "raw":
			g.logged.raw = format.U64s(v, sp.words)
		default:
			return nil, false
		}
		return sp.Encode(nil)[head.End():], true
	})
	require.Equal(t, EntrySize, l.Field("live map").Offset)

	sp := New(pages, 0, nil)
	sp.extendTo(3)
	sp.successor = 2
	b := sp.Encode(nil)
	require.EqualValues(t, 3, le.Uint32(head.Field("segments").In(b)))
	require.Len(t, b, head.End()+3*l.Field("live map").Offset, "no live map where nothing lives")
	require.Equal(t, fmt.Sprintf("%d: no page is live; %d: a live map follows; %d: and masks, a mean and a map of raw pages after it", mapDead, mapPartial, mapLogged), l.Field("form").Constraint)
	require.Equal(t, byte(mapDead), l.Field("form").In(b[head.End():])[0])

	require.Equal(t, map[string]uint64{
		"absent: not in the file, or without space of its own": uint64(segmentAbsent), "free": uint64(segmentFree),
		"in use": uint64(segmentUsed), "private, of a transaction that had not committed": uint64(segmentPrivate),
	}, d.Table("Segment states").Numbers("segment", "state"))
}
