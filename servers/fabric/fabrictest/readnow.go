package fabrictest

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// reader connects, and returns the endpoint as a Reader that can reach the region. It skips the test if the provider
// has no Reader.
func (s *suite) reader(t *testing.T, o owner, k fabric.Key) (*side, fabric.Reader) {
	t.Helper()
	c := s.connect(t, o)
	r, ok := c.e.(fabric.Reader)
	if !ok {
		t.Skip("the provider's Reads take a work request")
	}
	require.NoError(t, c.do(c.read(k, 0, 8)).Err)
	return c, r
}

// testReadNow: ReadNow returns the bytes, and refuses what it must not reach without ending the endpoint.
func testReadNow(t *testing.T, s *suite) {
	o := s.owner(t)
	region, key := alloc(t, o, 128, both)
	c, r := s.reader(t, o, key)
	model := make([]byte, 128)
	for i := range model {
		model[i] = byte(rand.Uint32())
	}
	copy(c.local.Bytes(), model)
	require.NoError(t, c.do(c.write(key, 0, 128)).Err)
	for range 300 {
		from, to, n := rand.IntN(64), rand.IntN(64), rand.IntN(64)
		got := make([]byte, 128)
		require.NoError(t, r.ReadNow(got[to:to+n], key, uint64(from)))
		want := make([]byte, 128)
		copy(want[to:], model[from:from+n])
		require.Equal(t, want, got)
	}
	for _, off := range []uint64{121, 128, 1 << 40, math.MaxUint64, math.MaxUint64 - 7} {
		assert.ErrorIs(t, r.ReadNow(make([]byte, 8), key, off), fabric.ErrAccess, "at %d", off)
	}
	for name, wrong := range map[string]func(k *fabric.Key){
		"another rkey":   func(k *fabric.Key) { k.Rkey++ },
		"another life":   func(k *fabric.Key) { k.Nonce++ },
		"no such region": func(k *fabric.Key) { k.ID += 1 << 20 },
		"no key":         func(k *fabric.Key) { *k = fabric.Key{} },
	} {
		k := key
		wrong(&k)
		assert.Error(t, r.ReadNow(make([]byte, 8), k, 0), name)
	}
	_, writable := alloc(t, o, 128, fabric.RemoteWrite)
	require.NoError(t, c.do(c.write(writable, 0, 8)).Err)
	assert.ErrorIs(t, r.ReadNow(make([]byte, 8), writable, 0), fabric.ErrAccess, "without the right")
	require.NoError(t, r.ReadNow(make([]byte, 8), key, 0), "the endpoint goes on")

	other, otherKey := alloc(t, o, 128, both)
	require.NoError(t, c.do(c.read(otherKey, 0, 8)).Err)
	o.call(t, request{Do: "close region", Region: other})
	require.ErrorIs(t, r.ReadNow(make([]byte, 8), otherKey, 0), fabric.ErrAccess, "closed")
	o.call(t, request{Do: "fence", Region: region})
	require.ErrorIs(t, r.ReadNow(make([]byte, 8), key, 0), fabric.ErrAccess, "fenced")
	require.NoError(t, c.e.Close())
	require.Error(t, r.ReadNow(make([]byte, 8), key, 0), "the endpoint has ended")
}

// testReadNowUnderFire lets several goroutines read while the owner writes, fences and closes regions, and while the
// endpoint ends: words are whole, and no Read returns what was written after a fence.
func testReadNowUnderFire(t *testing.T, s *suite) {
	o := s.owner(t)
	for round := range max(s.rounds(20), 8) {
		region, key := alloc(t, o, 4096, both)
		c, r := s.reader(t, o, key)
		o.call(t, request{Do: "churn", Region: region})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				got := make([]byte, 4096)
				for {
					if err := r.ReadNow(got, key, 0); err != nil {
						return
					}
					for at := 0; at < len(got); at += words.Size {
						if w := words.Load(got, at); torn(w) {
							t.Errorf("a torn word, or one from behind the fence, was read: %x", w)
							return
						}
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		o.call(t, request{Do: "still"})
		switch round % 3 {
		case 0:
			o.call(t, request{Do: "fence", Region: region})
		case 1:
			o.call(t, request{Do: "close region", Region: region})
		default:
			require.NoError(t, c.e.Close())
		}
		readers.Wait()
	}
}
