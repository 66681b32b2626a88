package protocol

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTimestamp(t *testing.T) {
	ts := MakeTimestamp(1<<42-1, MaxClients-1, maxCount)
	require.EqualValues(t, ^uint64(0), ts)
	ts = MakeTimestamp(1_700_000_000_000, 7, 9)
	require.EqualValues(t, 1_700_000_000_000, ts.Milli())
	require.EqualValues(t, 7, ts.Client())
	require.EqualValues(t, 9, ts.Count())
	require.Equal(t, "1700000000000.7.9", ts.String())
}

// TestClock: whatever the wall clock shows and the servers say, no timestamp is used twice, and timestamps ascend
// unless the clock was set back.
func TestClock(t *testing.T) {
	c := NewClock(3)
	used := map[Timestamp]bool{}
	last := Timestamp(0)
	next := func(wall uint64, rises bool) Timestamp {
		ts := c.Next(wall)
		require.False(t, used[ts], "%v comes twice", ts)
		if rises {
			require.Greater(t, ts, last)
		}
		used[ts], last = true, ts
		return ts
	}
	for range 3000 {
		next(5000, true)
	}
	require.EqualValues(t, 5002, last.Milli())
	next(4000, true)
	c.Seen(MakeTimestamp(9000, 1, 0))
	require.EqualValues(t, 9001, next(5000, true).Milli())
	next(100_000, true) // the wall clock runs fast
	for range 3 {       // several transactions are corrected
		c.Correct(100_000, MakeTimestamp(10_000, 0, 0))
		ts := next(100_000, false)
		require.Less(t, ts.Milli(), uint64(10_010))
	}
	require.InDelta(t, 20_000, float64(next(110_000, true).Milli()), 10)
	c.Correct(110_000, MakeTimestamp(8000, 0, 0))
	for range 5 {
		next(110_000, false)
	}
	for wall := uint64(110_000); wall < 123_000; wall++ { // through times that were used before
		next(wall, true)
	}
}

func TestMeta(t *testing.T) {
	hashes := SortHashes([]uint64{9, 1 << 63, 4, 4, 77})
	require.Len(t, hashes, 4)
	for k := KindNone; k <= KindBloom; k++ {
		m := MakeMeta(k, 7, hashes)
		b := m.AppendContent([]byte("x"), []byte("value"))
		require.Len(t, b, 1+m.Size(5))
		got, value, err := ParseContent(b[1:])
		require.NoError(t, err)
		require.Equal(t, "value", string(value))
		require.Equal(t, k, got.Kind)
		require.EqualValues(t, 7, got.Client)
		require.Equal(t, m.AppendContent(nil, nil), AppendWithoutValue(nil, b[1:]))
		for _, h := range hashes {
			require.Equal(t, k != KindNone, got.Has(h))
		}
		for _, h := range []uint64{0, 5, 1<<63 + 1, 1 << 40} {
			if k == KindHashes {
				require.False(t, got.Has(h))
			}
		}
	}
	false4, tried := 0, 100_000
	m := MakeMeta(KindBloom, 7, []uint64{0x123456789abcdef0, 0xfedcba9876543210, 0x0f1e2d3c4b5a6978, 0x1122334455667788})
	for i := range uint64(tried) {
		if m.Has(i * 0x9E3779B97F4A7C15) {
			false4++
		}
	}
	require.Less(t, false4, tried/1000) // 1 in 17,000 is expected
}

// The bytes of each message are given here once.
func TestGolden(t *testing.T) {
	p := Prepare{TS: 0x0102030405060708, Client: 9, Kind: KindHashes, Hashes: []uint64{1, 2}, Parts: []Part{{Key: []byte("k"), Value: []byte("vv")}, {Removed: true, Key: []byte("m"), Value: []byte{}}}}
	g := Get{Among: []Transaction{{5, 8}}, Keys: []Wanted{{TS: 6, Key: []byte("k")}}}
	got := Got{Term: 3, Tenure: 4, Versions: []Version{{State: StateFound, TS: 8, Content: []byte("c"), Slot: Slot{16, 1, 64}}}}
	l := Lock{Transaction: Transaction{2, 3}, Keys: [][]byte{[]byte("k")}}
	e := Extent{Term: 1, Key: [5]uint64{2, 3, 4, 5, 6}}
	for want, b := range map[string][]byte{
		"0807060504030201" + "0900000000000000" + "01000200" + "02000000" + "0100000000000000" + "0200000000000000" + "0100000002000000" + "6b7676" + "0100010000000000" + "6d": p.AppendBody(nil),
		"0100000001000000" + "0500000000000000" + "0800000000000000" + "060000000000000001000000" + "6b":                                                                        g.AppendBody(nil),
		"0300000000000000" + "0400000001000000" + "0100000001000000" + "0800000000000000" + "1000000000000000" + "0100000040000000" + "63":                                      got.AppendBody(nil),
		"0200000000000000" + "0300000000000000" + "01000000" + "01000000" + "6b":                                                                                                l.AppendBody(nil),
		"0100000000000000" + "0200000000000000" + "0300000000000000" + "0400000000000000" + "0500000000000000" + "0600000000000000":                                             e.AppendBody(nil),
	} {
		require.Equal(t, want, hex.EncodeToString(b))
	}
	require.Equal(t, len(p.AppendBody(nil)), p.Size())
	require.Equal(t, len(g.AppendBody(nil)), g.Size())
	require.Equal(t, len(l.AppendBody(nil)), l.Size())
	var p2 Prepare
	require.NoError(t, p2.Parse(p.AppendBody(nil)))
	require.Equal(t, p.Clone(), p2.Clone())
	var g2 Get
	require.NoError(t, g2.Parse(g.AppendBody(nil)))
	require.Equal(t, g.Clone(), g2.Clone())
	var got2 Got
	require.NoError(t, got2.Parse(got.AppendBody(nil), 1))
	require.Equal(t, got, got2)
	require.ErrorIs(t, got2.Parse(got.AppendBody(nil), 2), ErrMalformed)
	var l2 Lock
	require.NoError(t, l2.Parse(l.AppendBody(nil)))
	require.Equal(t, l, l2)
	var e2 Extent
	require.NoError(t, e2.Parse(e.AppendBody(nil)))
	require.Equal(t, e, e2)
}

// FuzzParse gives any bytes to all decoders. If one accepts them, encoding gives the same bytes.
func FuzzParse(f *testing.F) {
	p := Prepare{TS: 7, Client: 9, Kind: KindBloom, Hashes: []uint64{1, 2}, Parts: []Part{{Key: []byte("k"), Value: []byte("v")}}}
	f.Add(p.AppendBody(nil))
	f.Add((&Get{Among: []Transaction{{5, 8}}, Keys: []Wanted{{TS: 6, Key: []byte("k")}}}).AppendBody(nil))
	f.Add((&Got{Versions: []Version{{State: StateGone}}}).AppendBody(nil))
	f.Add((&Lock{Transaction: Transaction{2, 3}, Keys: [][]byte{[]byte("k")}}).AppendBody(nil))
	f.Add((&Hello{}).Append(nil))
	f.Add((&Welcome{Partitions: 1}).Append(nil))
	m := MakeMeta(KindHashes, 7, []uint64{1, 2})
	f.Add(m.AppendContent(nil, []byte("value")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Prepare
		if p.Parse(b) == nil {
			var again Prepare
			require.NoError(t, again.Parse(p.AppendBody(nil)))
			require.Equal(t, p.Clone(), again.Clone())
			require.Len(t, b, p.Size())
		}
		var g Get
		if g.Parse(b) == nil {
			require.Equal(t, b, g.AppendBody(nil))
		}
		for keys := range 3 {
			var got Got
			if got.Parse(b, keys) == nil {
				require.Len(t, got.Versions, keys)
			}
		}
		var l Lock
		if l.Parse(b) == nil {
			require.Equal(t, b, l.AppendBody(nil))
		}
		var d Transaction
		if d.Parse(b) == nil {
			require.Equal(t, b, d.AppendBody(nil))
		}
		if meta, value, err := ParseContent(b); err == nil {
			require.Len(t, b, meta.Size(len(value)))
			meta.Has(5)
		}
		new(Hello).Parse(b)
		new(Welcome).Parse(b)
		new(Newest).Parse(b)
		new(Extent).Parse(b)
		ParseExtentRequest(b)
	})
}

// TestClockBetweenTwoServers: two servers, whose dates differ by more than they accept, refuse a clock by turns. The
// timestamps that it uses stay within two spans and do not run away.
func TestClockBetweenTwoServers(t *testing.T) {
	c := NewClock(3)
	used := map[Timestamp]bool{}
	for i := range uint64(5000) {
		ts := c.Next(1_000_000 + i/100)
		require.False(t, used[ts])
		used[ts] = true
		if i%2 == 0 {
			c.Seen(MakeTimestamp(1_014_000, 1, 0)) // one server refuses lower timestamps
		} else {
			c.Correct(1_000_000+i/100, MakeTimestamp(1_000_000+i/100, 0, 0)) // the date of the other server
		}
		require.Less(t, ts.Milli(), uint64(1_017_000), "try %d", i)
		require.LessOrEqual(t, len(c.used), 2)
	}
}

// TestClockForgetsNothing: a clock that is set back and forth many times returns no timestamp twice.
func TestClockForgetsNothing(t *testing.T) {
	c := NewClock(3)
	used := map[Timestamp]bool{}
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		wall := uint64(1_000_000 + r.IntN(1_000_000))
		for range 1 + r.IntN(3) {
			ts := c.Next(wall)
			require.False(t, used[ts], "%v comes twice", ts)
			used[ts] = true
		}
		c.Correct(wall, MakeTimestamp(uint64(1_000_000+r.IntN(1_000_000)), 0, 0))
		require.LessOrEqual(t, len(c.used), maxSpans)
	}
}
