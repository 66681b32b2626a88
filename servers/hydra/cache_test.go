package hydra

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPointerCache: of half as many pointers as there are slots, nearly all are kept. A pointer is found only by its
// own hash. A full set replaces a pointer.
func TestPointerCache(t *testing.T) {
	require.EqualValues(t, 64, reflect.TypeFor[pointerSet]().Size(), "a line of the processor's cache")
	require.EqualValues(t, 128, reflect.TypeFor[pointer]().Size())
	const n = 7 * 1024
	c := newPointers(n)
	require.Len(t, c.sets, 1024)
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]*pointer, n/2)
	for i := range list {
		list[i] = &pointer{hash: r.Uint64()}
		c.put(list[i])
		require.Same(t, list[i], c.get(list[i].hash))
	}
	kept := 0
	for _, p := range list {
		if got := c.get(p.hash); got != nil {
			require.Same(t, p, got)
			kept++
		}
		require.Nil(t, c.get(p.hash^1<<30), "the same set and tag, another hash")
	}
	require.Greater(t, kept, len(list)*97/100)

	p := list[n/2-1]
	q := &pointer{hash: p.hash}
	c.put(q)
	c.drop(p)
	require.Same(t, q, c.get(p.hash), "another pointer has taken its place")
	c.drop(q)
	require.Nil(t, c.get(p.hash))
	c.clear()
	for _, p := range list {
		require.Nil(t, c.get(p.hash))
	}

	one := newPointers(1) // one set
	for i := range uint64(setPlaces) {
		one.put(&pointer{hash: i << 48, end: int64(i)})
	}
	one.put(&pointer{hash: 100 << 48, end: 100})
	require.NotNil(t, one.get(100<<48))
	left := 0
	for i := range uint64(setPlaces) {
		if one.get(i<<48) != nil {
			left++
		}
	}
	require.Equal(t, setPlaces-1, left, "one was replaced")
}

// TestPointerCacheShared has goroutines get and drop pointers of one set while another goroutine puts. Each pointer
// that is returned has the requested hash.
func TestPointerCacheShared(t *testing.T) {
	c := newPointers(1)
	hash := func(r *rand.Rand) uint64 { return r.Uint64N(2*setPlaces)<<48 | r.Uint64N(2)<<20 } // two of each tag
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range uint64(2) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, i))
			for !over.Load() {
				h := hash(r)
				if p := c.get(h); p != nil {
					if p.hash != h {
						t.Errorf("%#x instead of %#x", p.hash, h)
						return
					}
					if r.IntN(4) == 0 {
						c.drop(p)
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		h := hash(r)
		c.put(&pointer{hash: h})
	}
	over.Store(true)
	all.Wait()
	seen := map[uint64]bool{}
	for i := range c.sets[0].places {
		if p := c.sets[0].places[i].Load(); p != nil {
			require.False(t, seen[p.hash], "a hash has two pointers")
			seen[p.hash] = true
		}
	}
}
