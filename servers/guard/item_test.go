package guard

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

func built(it *Item) ([]byte, uint64) {
	b := make([]byte, Size(len(it.Key), len(it.Value)))
	for i := range b { // bytes of an earlier item
		b[i] = byte(i) | 1
	}
	return b, Build(b, it)
}

func TestLayout(t *testing.T) {
	b, g := built(&Item{Flags: Manifest, Version: 0x1122334455667788, Expiry: 7, Key: []byte("key"), Value: []byte("value!")})
	want := append([]byte{3, 0, 2, 0, 6, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 7, 0, 0, 0, 0, 0, 0, 0}, "keyvalue!\x00\x00\x00\x00\x00\x00\x00"...)
	require.Equal(t, want, b[:len(b)-8])
	assert.Equal(t, make([]byte, 8), b[len(b)-8:], "an item is not shown before Show")
	assert.Equal(t, xxh3.Hash(want), g)
	Show(b, g)
	assert.Equal(t, g, binary.LittleEndian.Uint64(b[len(b)-8:]))
}

func TestVerify(t *testing.T) {
	it := Item{Version: 9, Expiry: 1, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 100)}
	b, g := built(&it)
	_, err := Verify(b, it.Key)
	require.ErrorIs(t, err, ErrStale, "not shown yet")
	Show(b, g)
	got, err := Verify(b, it.Key)
	require.NoError(t, err)
	assert.Equal(t, it, got)
	_, err = Verify(b, []byte("l"))
	require.ErrorIs(t, err, ErrOtherKey)
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		_, err := Verify(b, it.Key)
		assert.ErrorIs(t, err, ErrStale, "bit %d", bit)
		b[bit/8] ^= 1 << (bit % 8)
	}
	for n := range b {
		_, err := Verify(b[:n], it.Key)
		assert.ErrorIs(t, err, ErrStale, "%d bytes", n)
	}
	Hide(b)
	_, err = Verify(b, it.Key)
	require.ErrorIs(t, err, ErrStale)
}

// TestTorn mixes the words of two valid items of the same size. Only the two unmixed copies may be accepted.
func TestTorn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		value := func() []byte { return []byte{byte(r.IntN(2)), 0, 0, 0, 0, 0, 0, byte(r.IntN(2))} }
		a := Item{Version: 1 + r.Uint64N(2), Key: []byte("same key"), Value: value()}
		b := Item{Version: 1 + r.Uint64N(2), Key: a.Key, Value: value()}
		ba, ga := built(&a)
		bb, gb := built(&b)
		Show(ba, ga)
		Show(bb, gb)
		mixed := bytes.Clone(ba)
		for i := 0; i < len(mixed); i += 8 {
			if r.IntN(2) == 0 {
				copy(mixed[i:i+8], bb[i:])
			}
		}
		pure := bytes.Equal(mixed, ba) || bytes.Equal(mixed, bb)
		_, err := Verify(mixed, a.Key)
		assert.Equal(t, pure, err == nil)
	}
}

func FuzzVerify(f *testing.F) {
	b, g := built(&Item{Version: 1, Key: []byte("k"), Value: []byte("v")})
	Show(b, g)
	f.Add(b, []byte("k"))
	f.Fuzz(func(t *testing.T, b, key []byte) {
		if it, err := Verify(b, key); err == nil {
			assert.Equal(t, key, append([]byte{}, it.Key...))
			assert.Len(t, b, Size(len(it.Key), len(it.Value)))
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	c, g := built(&Item{Version: 1, Key: make([]byte, 16), Value: make([]byte, 32)})
	Show(c, g)
	key := make([]byte, 16)
	for b.Loop() {
		if _, err := Verify(c, key); err != nil {
			b.Fatal(err)
		}
	}
}
