package arena

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

type region struct {
	b      []byte
	closed *int
}

func (r region) Bytes() []byte   { return r.b }
func (r region) Key() fabric.Key { return fabric.Key{Len: uint64(len(r.b))} }
func (r region) Fence() error    { return nil }
func (r region) Close() error    { *r.closed++; return nil }

func newArena(t testing.TB, o Options) (*Arena, *int) {
	closed := 0
	a, err := New(func(n int, _ fabric.Access) (fabric.Region, error) { return region{make([]byte, n), &closed}, nil }, o)
	require.NoError(t, err)
	return a, &closed
}

type held struct {
	p    Place
	n    int
	fill byte
	end  int64 // of the lease
}

// TestModel allocates, retires and reaps blocks at random. The bytes of every block stay unchanged until its lease has
// ended.
func TestModel(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 2))
		a, _ := newArena(t, Options{Extent: 64 << 10 << r.IntN(3), Limit: 512 << 10})
		var live, dead []held
		now := int64(1)
		intact := func(list []held) {
			for _, h := range list {
				require.Equal(t, bytes.Repeat([]byte{h.fill}, h.n), a.Bytes(h.p)[:h.n], "seed %d", seed)
			}
		}
		largest := 200 << r.IntN(9)
		full := 0
		for range 2500 {
			switch r.IntN(8) {
			case 0, 1, 2, 3:
				n := 8 + r.IntN(1+r.IntN(largest))
				p, err := a.Alloc(n)
				if err != nil {
					require.ErrorIs(t, err, ErrFull)
					full++
					continue
				}
				assert.Zero(t, a.Lease(p))
				require.GreaterOrEqual(t, len(a.Bytes(p)), n)
				require.Zero(t, p.Offset()%8)
				h := held{p: p, n: n, fill: byte(r.Uint32())}
				copy(a.Bytes(p)[:n], bytes.Repeat([]byte{h.fill}, n))
				live = append(live, h)
			case 4, 5:
				if len(live) == 0 {
					continue
				}
				i := r.IntN(len(live))
				h := live[i]
				live = append(live[:i], live[i+1:]...)
				if r.IntN(2) == 0 {
					h.end = now + r.Int64N(80e9)
					a.Extend(h.p, h.end)
				}
				a.Retire(h.p, now)
				if h.end > now {
					require.Panics(t, func() { a.Retire(h.p, now) })
					require.Panics(t, func() { a.Extend(h.p, now) })
					dead = append(dead, h)
				}
			case 6:
				now += r.Int64N(1 << r.IntN(34))
				a.Reap(now, 1+r.IntN(100))
			case 7:
				keep := dead[:0]
				for _, h := range dead {
					if h.end > now {
						keep = append(keep, h)
					}
				}
				dead = keep
				intact(live)
				intact(dead)
			}
		}
		for _, h := range live {
			a.Retire(h.p, now)
		}
		now += 200e9
		for a.Reap(now, 10) > 0 {
		}
		assert.Zero(t, a.Live())
		assert.Zero(t, a.Dead())
		for _, e := range a.extents {
			free := e.free
			for _, list := range a.partial {
				for _, s := range list {
					if a.extents[s.extent] == e {
						assert.Zero(t, s.count)
						free += s.pages
					}
				}
			}
			assert.Equal(t, len(e.spans), free)
		}
	}
}

func TestLimits(t *testing.T) {
	a, closed := newArena(t, Options{Extent: 64 << 10, Limit: 128 << 10})
	_, err := a.Alloc(64 << 10)
	require.ErrorIs(t, err, ErrTooLarge)
	p, err := a.Alloc(a.MaxItem())
	require.NoError(t, err)
	_, err = a.Alloc(a.MaxItem())
	require.NoError(t, err)
	_, err = a.Alloc(8)
	require.ErrorIs(t, err, ErrFull)
	a.Extend(p, 5e9)
	a.Retire(p, 1e9)
	assert.True(t, a.Pressed())
	assert.Zero(t, a.Reap(5e9-1, 10), "the lease is not over")
	_, err = a.Alloc(8)
	require.ErrorIs(t, err, ErrFull)
	assert.Equal(t, 1, a.Reap(5e9+1<<tickBits, 10))
	_, err = a.Alloc(8)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	assert.Equal(t, 2, *closed)
	for _, extent := range []int{1, 100 << 10, 512 << 20} {
		_, err := New(nil, Options{Extent: extent})
		assert.Error(t, err)
	}
}

func BenchmarkAllocRetire(b *testing.B) {
	a, _ := newArena(b, Options{Extent: 64 << 20})
	for b.Loop() {
		p, _ := a.Alloc(88)
		a.Retire(p, 1)
	}
}
