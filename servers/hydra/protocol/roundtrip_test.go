package protocol

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/circle"
)

// A codec is one kind of body: parse decodes it and encodes the result again.
type codec struct {
	name     string
	reserved [][2]int // offset and size of bytes that the decoder ignores
	good     [][]byte
	parse    func(b []byte) ([]byte, error)
}

func requests(op Op, flags Flags, good ...Request) codec {
	c := codec{name: op.String()}
	for _, r := range good {
		r.Op, r.Flags = op, flags
		c.good = append(c.good, r.AppendBody(nil))
	}
	c.parse = func(b []byte) ([]byte, error) {
		var r Request
		key, err := KeyOf(op, b), r.Parse(op, flags, b)
		if err == nil && (op == OpGet || op.IsWrite()) && !bytes.Equal(key, r.Key) {
			err = fmt.Errorf("KeyOf says %q", key)
		}
		return r.AppendBody(nil), err
	}
	return c
}

func codecs() []codec {
	key, value := []byte("key"), []byte("some value")
	item := func(flags Flags, good ...Item) codec {
		c := codec{name: "item", reserved: [][2]int{{18, 2}}, parse: func(b []byte) ([]byte, error) {
			var i Item
			err := i.Parse(flags, b)
			return i.AppendBody(nil), err
		}}
		for _, i := range good {
			c.good = append(c.good, i.AppendBody(nil))
		}
		return c
	}
	scanAnswer := AppendScanStart(nil)
	for _, s := range []Scanned{{Version: 1, Expiry: 2, ItemFlags: 3, Key: key, Value: value}, {Key: nil, Value: nil}, {Key: key}} {
		scanAnswer = s.AppendBody(scanAnswer)
	}
	SetScanNext(scanAnswer, 77)
	var batch []byte
	for i, body := range [][]byte{key, nil, []byte("12345678")} {
		start := len(batch)
		batch = append(AppendPart(batch, OpGet, FlagPointer, Status(i)), body...)
		batch = EndPart(batch, start)
	}
	place := Map{Version: 3, Seed: 4, Shards: []Place{{Shard: 1, Addrs: []string{"shm:/a", ""}}, {Shard: 7, Addrs: []string{"tcp:10.0.0.1:7400"}}}}
	moving := place
	moving.Moving = circle.Assignment{Shards: []uint32{1}, Next: []uint32{1, 7, 9}, Moved: []circle.Pair{{From: 1, To: 7}}}
	hello := Hello{Shard: 1, Client: 2, Next: 3, Nonce: [16]byte{4}}
	welcome := Welcome{Shard: 1, MapVersion: 2, Term: 3, NeedsAuth: true, Nonce: [16]byte{4}, Proof: [32]byte{5}}
	return []codec{
		requests(OpGet, 0, Request{Key: key}, Request{}, Request{Key: make([]byte, MaxKey)}),
		requests(OpPut, FlagRelative, Request{Number: 9, Oldest: 3, Expiry: 4, ItemFlags: ItemManifest, Key: key, Value: value},
			Request{Number: 1, Oldest: 1}, Request{Number: Window, Oldest: 1, Key: make([]byte, MaxKey)}),
		requests(OpCompareAndSet, FlagRemove, Request{Number: 9, Oldest: 9, Operand: 5, Key: key}),
		requests(OpAdd, 0, Request{Number: 9, Oldest: 9, Operand: 1<<64 - 5, Key: key}),
		requests(OpRemove, 0, Request{Number: 9, Oldest: 9, Key: key}),
		requests(OpExtent, 0, Request{Extent: 5}),
		requests(OpAuth, 0, Request{Key: make([]byte, ProofSize)}),
		requests(OpMap, 0, Request{}),
		item(0, Item{Version: 1, Expiry: 2, ItemFlags: 3, Value: value}, Item{}),
		item(FlagPointer, Item{Version: 1, HasPointer: true, Pointer: Pointer{1, 2, 3, 4, 5, 6}, Value: value}),
		{name: "written", good: [][]byte{(&Written{1, -2}).AppendBody(nil)}, parse: func(b []byte) ([]byte, error) {
			var w Written
			err := w.Parse(b)
			return w.AppendBody(nil), err
		}},
		{name: "manifest", good: [][]byte{(&Manifest{ID: circle.ID{1}, Size: MaxValue + 1, Hash: 3}).Append(nil)}, parse: func(b []byte) ([]byte, error) {
			var m Manifest
			err := m.Parse(b)
			return m.Append(nil), err
		}},
		{name: "extent", good: [][]byte{(&Extent{1, [5]uint64{2, 3, 4, 5, 6}}).AppendBody(nil)}, parse: func(b []byte) ([]byte, error) {
			var e Extent
			err := e.Parse(b)
			return e.AppendBody(nil), err
		}},
		{name: "renew", good: [][]byte{nil, AppendRenew(AppendRenew(nil, 5, key), 6, nil)}, parse: func(b []byte) ([]byte, error) {
			n, err := CheckRenew(b)
			if err != nil {
				return nil, err
			}
			var out []byte
			for r := range Renewals(b) {
				out = AppendRenew(out, r.Version, r.Key)
				n--
			}
			if n != 0 {
				panic("CheckRenew counts other keys than there are")
			}
			return out, nil
		}},
		{name: "renewed", good: [][]byte{(&Renewed{1, 2, []uint32{3, 0}}).AppendBody(nil), (&Renewed{}).AppendBody(nil)}, parse: func(b []byte) ([]byte, error) {
			var r Renewed
			err := r.Parse(b)
			return r.AppendBody(nil), err
		}},
		{name: "scan", good: [][]byte{(&Scan{1, 2, 3, 4}).AppendBody(nil)}, parse: func(b []byte) ([]byte, error) {
			var s Scan
			err := s.Parse(b)
			return s.AppendBody(nil), err
		}},
		{name: "scanned", good: [][]byte{AppendScanStart(nil), scanAnswer}, parse: func(b []byte) ([]byte, error) {
			next, n, err := CheckScan(b)
			if err != nil {
				return nil, err
			}
			out := AppendScanStart(nil)
			for s := range ScannedItems(b) {
				out = s.AppendBody(out)
				n--
			}
			SetScanNext(out, next)
			if n != 0 {
				panic("CheckScan counts other items than there are")
			}
			return out, nil
		}},
		{name: "batch", reserved: [][2]int{{11, 5}}, good: [][]byte{nil, batch}, parse: func(b []byte) ([]byte, error) {
			n, err := CheckBatch(b)
			if err != nil {
				return nil, err
			}
			var out []byte
			for p := range Parts(b) {
				start := len(out)
				out = EndPart(append(AppendPart(out, p.Op, p.Flags, p.Status), p.Body...), start)
				copy(out[start+partHead+len(p.Body):], b[start+partHead+len(p.Body):]) // the decoder ignores padding
				n--
			}
			if n != 0 {
				panic("CheckBatch counts other parts than there are")
			}
			return out, nil
		}},
		{name: "map", good: [][]byte{place.AppendBody(nil), moving.AppendBody(nil)}, parse: func(b []byte) ([]byte, error) {
			var m Map
			err := m.Parse(b)
			return m.AppendBody(nil), err
		}},
		{name: "hello", reserved: [][2]int{{6, 2}}, good: [][]byte{hello.Append(nil)}, parse: func(b []byte) ([]byte, error) {
			var h Hello
			err := h.Parse(b)
			return h.Append(nil), err
		}},
		{name: "welcome", reserved: [][2]int{{6, 2}, {72, 4}}, good: [][]byte{welcome.Append(nil)}, parse: func(b []byte) ([]byte, error) {
			var w Welcome
			err := w.Parse(b)
			return w.Append(nil), err
		}},
	}
}

// check decodes a body. Either that fails as malformed, or encoding the result gives the same bytes.
func (c *codec) check(t *testing.T, b []byte) bool {
	t.Helper()
	again, err := c.parse(b)
	if err != nil {
		require.ErrorIs(t, err, ErrMalformed)
		return false
	}
	want := bytes.Clone(b)
	for _, r := range c.reserved {
		if len(want) >= r[0]+r[1] && len(again) >= r[0]+r[1] {
			copy(want[r[0]:r[0]+r[1]], again[r[0]:])
		}
	}
	require.True(t, bytes.Equal(want, again), "%s: %x is encoded as %x", c.name, want, again)
	return true
}

func TestRoundTrip(t *testing.T) {
	for _, c := range codecs() {
		for i, b := range c.good {
			require.True(t, c.check(t, b), "%s %d", c.name, i)
			again, _ := c.parse(b)
			require.True(t, bytes.Equal(b, again), "%s %d", c.name, i)
		}
	}
}

// TestCutOff decodes each body truncated to every shorter length, and with one byte more. Nothing panics, and a fixed
// layout is never accepted.
func TestCutOff(t *testing.T) {
	for _, c := range codecs() {
		for _, b := range c.good {
			accepted := 0
			for n := range min(len(b), 300) {
				if c.check(t, b[:n:n]) {
					accepted++
				}
			}
			c.check(t, append(bytes.Clone(b), 1))
			if !strings.Contains("GET renew scanned batch", c.name) {
				require.Zero(t, accepted, c.name)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	var r Request
	w := Request{Op: OpPut, Number: Window + 1, Oldest: 1}
	require.ErrorIs(t, r.Parse(OpPut, 0, w.AppendBody(nil)), ErrMalformed, "number too far above the oldest")
	w = Request{Op: OpPut, Number: 1, Oldest: 2}
	require.ErrorIs(t, r.Parse(OpPut, 0, w.AppendBody(nil)), ErrMalformed, "oldest above the number")
	w = Request{Op: OpRemove, Number: 1, Oldest: 1, Value: []byte{1}}
	require.ErrorIs(t, r.Parse(OpRemove, 0, w.AppendBody(nil)), ErrMalformed, "a REMOVE with a value")
	w = Request{Op: OpPut, Number: 1, Oldest: 1, Key: make([]byte, MaxKey+1)}
	require.ErrorIs(t, r.Parse(OpPut, 0, w.AppendBody(nil)), ErrMalformed, "key too long")
	w = Request{Op: OpPut, Number: 1, Oldest: 1, Value: make([]byte, MaxValue+1)}
	require.ErrorIs(t, r.Parse(OpPut, 0, w.AppendBody(nil)), ErrMalformed, "value too long")
	require.ErrorIs(t, r.Parse(OpScan, 0, nil), ErrMalformed, "an op with a type of its own")
	var renew, batch []byte
	for range MaxRenew + 1 {
		renew = AppendRenew(renew, 1, nil)
	}
	_, err := CheckRenew(renew)
	require.ErrorIs(t, err, ErrMalformed)
	for range MaxBatch + 1 {
		batch = EndPart(AppendPart(batch, OpGet, 0, 0), len(batch))
	}
	_, err = CheckBatch(batch)
	require.ErrorIs(t, err, ErrMalformed)
	_, err = CheckBatch(EndPart(AppendPart(nil, OpBatch, 0, 0), 0))
	require.ErrorIs(t, err, ErrMalformed, "a batch in a batch")
}

// TestProof: each input of a proof changes its result.
func TestProof(t *testing.T) {
	h, w := Hello{Shard: AnyShard, Client: 2, Next: 3}, Welcome{Shard: 1}
	proof := Prove([]byte("secret"), ServerSide, &h, &w)
	require.True(t, ProofEqual(proof[:], proof[:]))
	other := func(secret string, side Side, change func(h *Hello, w *Welcome)) {
		h, w := h, w
		change(&h, &w)
		p := Prove([]byte(secret), side, &h, &w)
		require.False(t, ProofEqual(proof[:], p[:]))
	}
	other("secrets", ServerSide, func(*Hello, *Welcome) {})
	other("secret", ClientSide, func(*Hello, *Welcome) {})
	other("secret", ServerSide, func(h *Hello, _ *Welcome) { h.Nonce[0]++ })
	other("secret", ServerSide, func(h *Hello, _ *Welcome) { h.Client++ })
	other("secret", ServerSide, func(_ *Hello, w *Welcome) { w.Nonce[0]++ })
	other("secret", ServerSide, func(_ *Hello, w *Welcome) { w.Shard++ })
}

// FuzzDecoders gives the fuzzer's bytes to each decoder.
func FuzzDecoders(f *testing.F) {
	all := codecs()
	for i, c := range all {
		for _, b := range c.good {
			if len(b) < 4096 {
				f.Add(uint8(i), b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		all[int(which)%len(all)].check(t, b)
	})
}

// TestManifest: a manifest has as many chunks as its value needs. A manifest of a value that needs no
// chunks, or is above the limit, is refused.
func TestManifest(t *testing.T) {
	for size, chunks := range map[uint64]uint32{MaxValue + 1: 2, 2 * MaxValue: 2, 2*MaxValue + 1: 3, MaxLarge: MaxLarge / MaxValue} {
		m := Manifest{Size: size}
		require.NoError(t, m.Parse(m.Append(nil)))
		require.Equal(t, chunks, m.Chunks())
		sum := 0
		for i := range chunks {
			require.Positive(t, m.ChunkSize(i))
			sum += m.ChunkSize(i)
		}
		require.EqualValues(t, size, sum)
	}
	for _, size := range []uint64{0, MaxValue, MaxLarge + 1, 1 << 63} {
		m := Manifest{Size: size}
		require.ErrorIs(t, m.Parse(m.Append(nil)), ErrMalformed)
	}
}
