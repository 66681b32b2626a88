package replica

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
)

const testSize = 4096

// TestRing writes entries of all sizes to a ring, for many laps, word by word and in any order, and reads them at the
// same time.
func TestRing(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := mem.NewNetwork().Open()
		first := uint64(r.IntN(3))
		l, err := NewLog(d, testSize, first, nil)
		require.NoError(t, err)
		in, err := newRing(d, testSize)
		require.NoError(t, err)
		in.next = first + 1
		l.Keep(0)
		var want [][]byte
		posted, merged := first, 0 // entries that were written; number of entries read
		for merged < 300 {
			switch r.IntN(3) {
			case 0:
				if len(want) < 300 && !l.Waits() {
					body := bytes.Repeat([]byte{byte(len(want))}, r.IntN(testSize/2-frameHead-frameTail))
					if r.IntN(3) > 0 {
						body = body[:min(len(body), r.IntN(60))]
					}
					want = append(want, body)
					l.Append(uint64(len(want)/100+1), body)
				}
			case 1:
				if posted < l.seq {
					from, ok := l.start(posted)
					require.True(t, ok)
					to, _ := l.start(posted + 1)
					order := r.Perm(int(to-from) / 8)
					for i, w := range order {
						at := (from + uint64(w)*8) % testSize
						copy(in.mem[at:at+8], l.mem[at:at+8])
						if _, body, ok := in.peek(); ok && i < len(order)-1 && uint64(merged) == posted-first && !bytes.Equal(body, want[merged]) {
							t.Fatalf("seed %d: entry %d is read before it has come", seed, in.next)
						}
					}
					posted++
				}
			case 2:
				term, body, ok := in.peek()
				if !ok {
					continue
				}
				require.Equal(t, want[merged], append([]byte{}, body...), "seed %d, entry %d", seed, merged)
				require.Equal(t, uint64((merged+1)/100+1), term)
				merged++
				in.advance()
				l.Keep(in.pos)
			}
		}
		assert.Equal(t, l.Last(), in.next-1)
		assert.Equal(t, []Term{{1, first + 1}, {2, first + 100}, {3, first + 200}, {4, first + 300}}, l.Terms())
		assert.EqualValues(t, 2, l.TermAt(first+150))
		require.NoError(t, l.Close())
	}
}

// TestLogKeeps checks that no entry is overwritten that somebody still needs.
func TestLogKeeps(t *testing.T) {
	d := mem.NewNetwork().Open()
	l, err := NewLog(d, testSize, 0, nil)
	require.NoError(t, err)
	l.Keep(0)
	body := make([]byte, 1000)
	for range 6 {
		l.Append(1, body)
	}
	assert.EqualValues(t, 6, l.Last())
	assert.True(t, l.Waits())
	assert.EqualValues(t, 3, l.seq, "three entries of 1,032 bytes fit behind each other, and the fourth would begin the next lap")
	at, ok := l.start(0)
	assert.True(t, ok)
	assert.Zero(t, at)
	at, _ = l.start(2)
	l.Keep(at)
	assert.EqualValues(t, 5, l.seq)
	_, ok = l.start(0)
	assert.False(t, ok, "what was overwritten cannot be sent")
	l.Free()
	assert.False(t, l.Waits())
	assert.False(t, l.Fits(testSize/2))
	assert.Panics(t, func() { l.Append(1, make([]byte, testSize)) })
}

func TestMessages(t *testing.T) {
	m := Message{
		Kind: KindAnswer, Flags: FlagWhole, Term: 1, Seq: 2, Pos: 3, Synced: 4, Time: -5, Room: 6, Key: fabric.Key{ID: 7, Rkey: 8, Nonce: 9, Base: 10, Len: 11},
		Body: []byte("body"),
	}
	b := m.Append(nil)
	assert.Len(t, b, m.Size())
	var got Message
	require.NoError(t, got.Parse(b))
	assert.Equal(t, m, got)
	assert.ErrorIs(t, got.Parse(b[:messageHead-1]), ErrMalformed)
	h := Header{Terms: []Term{{1, 2}, {3, 4}}, State: []byte("state")}
	b = h.append(nil)
	var h2 Header
	require.NoError(t, h2.parse(b))
	assert.Equal(t, h, h2)
	for n := range 40 {
		assert.ErrorIs(t, h2.parse(b[:n]), ErrMalformed)
	}
}

func TestRecords(t *testing.T) {
	r := Record{Revision: 7, Term: 3, Primary: "a", Set: []string{"a", "b"}}
	got, err := ParseRecord(r.Data(), 7)
	require.NoError(t, err)
	assert.Equal(t, r, got)
	assert.Equal(t, []string{"a", "b", "c"}, r.with("c").Set)
	assert.Equal(t, []string{"b"}, r.without("a").Set)
	for _, bad := range []string{"", "{}", `{"term":1,"primary":"a"}`, `{"term":1,"primary":"a","set":["b"]}`} {
		_, err := ParseRecord([]byte(bad), 1)
		assert.Error(t, err, bad)
	}
}

// TestFailover promotes the member with the most entries among those that have everything acknowledged.
func TestFailover(t *testing.T) {
	f := NewFailover(Record{Revision: 4, Term: 2, Primary: "a", Set: []string{"a", "b", "c"}})
	_, ok := f.Next()
	assert.False(t, ok)
	f.Reported("d", Report{Seq: 100, Term: 2, Whole: true})
	f.Reported("c", Report{Seq: 9, Term: 2})
	_, ok = f.Next()
	assert.False(t, ok, "neither one that is not in the set, nor part of a copy")
	for i, m := range []string{"b", "c"} {
		f.Reported(m, Report{Seq: uint64(5 + i), Term: 2, Whole: true})
	}
	assert.Equal(t, []string{"a"}, f.Members())
	next, ok := f.Next()
	assert.True(t, ok)
	assert.Equal(t, Record{Revision: 4, Term: 3, Primary: "c", Set: []string{"b", "c"}}, next, fmt.Sprint(next))
}
