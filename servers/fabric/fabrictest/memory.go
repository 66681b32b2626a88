package fabrictest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

const both = fabric.RemoteRead | fabric.RemoteWrite

// alloc allocates a region of the owner.
func alloc(t *testing.T, o owner, n int, a fabric.Access) (int, fabric.Key) {
	t.Helper()
	r := o.call(t, request{Do: "alloc", N: n, Access: a})
	return r.Region, r.Key
}

// testHello: the owner sees the hello, the peer its answer; a refusal gives the reason; hellos have a limit.
func testHello(t *testing.T, s *suite) {
	o := s.owner(t)
	d, err := s.p.Open()
	require.NoError(t, err)
	defer d.Close()
	q, err := d.NewQueue(16)
	require.NoError(t, err)
	options := fabric.EndpointOptions{Send: q, Recv: q}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	long := strings.Repeat("x", fabric.MaxHello-100)
	e, answer, err := d.Dial(ctx, o.addr(), []byte(long), options)
	require.NoError(t, err)
	assert.Equal(t, "connection 0 to "+long, string(answer))
	assert.NotZero(t, e.Peer().Incarnation)
	other, _, err := d.Dial(ctx, o.addr(), nil, options)
	require.NoError(t, err)
	assert.Equal(t, e.Peer().Incarnation, other.Peer().Incarnation, "of the same owner")
	_, _, err = d.Dial(ctx, o.addr(), []byte("reject"), options)
	require.ErrorIs(t, err, fabric.ErrRefused)
	assert.ErrorContains(t, err, "as it has asked for")
	_, _, err = d.Dial(ctx, o.addr(), make([]byte, fabric.MaxHello+1), options)
	assert.Error(t, err)
	_, _, err = d.Dial(ctx, o.addr(), nil, fabric.EndpointOptions{Send: q})
	assert.Error(t, err, "without a queue for Recv")
	_, _, err = d.Dial(ctx, s.p.Addr(t.TempDir()), nil, options)
	assert.Error(t, err, "where nobody listens")
	_, err = d.Listen(o.addr())
	assert.Error(t, err, "where somebody listens")
}

func testReadWrite(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, 1<<20, both)
	assert.EqualValues(t, 1<<20, key.Len)
	for _, n := range []int{8, 64, 4096, 1 << 20} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(rand.Uint32())
		}
		copy(c.local.Bytes(), want)
		wc := c.do(c.write(key, 0, n))
		require.NoError(t, wc.Err)
		require.EqualValues(t, n, wc.Len)
		assert.True(t, bytes.Equal(want, o.call(t, request{Do: "load", Region: region, N: n}).Bytes))
		clear(c.local.Bytes())
		require.NoError(t, c.do(c.read(key, 0, n)).Err)
		assert.True(t, bytes.Equal(want, c.local.Bytes()[:n]))
	}
	_, key = alloc(t, o, 4096, both)
	copy(c.local.Bytes(), "not zero")
	require.NoError(t, c.do(c.read(key, 0, 4096)).Err)
	assert.Equal(t, make([]byte, 4096), c.local.Bytes()[:4096], "a new region has zeros")
}

// testAlignment: operations of all lengths between places of all alignments leave the bytes around them unchanged.
func testAlignment(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, 128, both)
	model := make([]byte, 128)
	local := c.local.Bytes()
	for range 300 {
		from, to := rand.IntN(64), rand.IntN(64)
		n := rand.IntN(64)
		for i := range 128 {
			local[i] = byte(rand.Uint32())
		}
		copy(model[to:to+n], local[from:])
		require.NoError(t, c.do(fabric.WR{Op: fabric.Write, Local: c.local, LOff: uint64(from), LLen: uint64(n), Remote: key, ROff: uint64(to)}).Err)
		beside := bytes.Clone(local[:256])
		copy(beside[100+from:100+from+n], model[to:])
		require.NoError(t, c.do(fabric.WR{Op: fabric.Read, Local: c.local, LOff: uint64(100 + from), LLen: uint64(n), Remote: key, ROff: uint64(to)}).Err)
		require.Equal(t, beside, local[:256])
	}
	assert.Equal(t, model, o.call(t, request{Do: "load", Region: region, N: 128}).Bytes)
}

// refused expects an operation to fail with ErrAccess, and the endpoint with it.
func refused(t *testing.T, s *suite, o owner, w func(c *side) fabric.WR, what string) {
	t.Helper()
	c := s.connect(t, o)
	require.ErrorIs(t, c.do(w(c)).Err, fabric.ErrAccess, what)
	require.ErrorIs(t, c.ended(), fabric.ErrAccess, what)
	n, err := c.e.Post([]fabric.WR{c.read(fabric.Key{}, 0, 8)})
	require.Zero(t, n)
	require.ErrorIs(t, err, fabric.ErrAccess, "Post after the end")
	c.e.Close()
}

func testBounds(t *testing.T, s *suite) {
	o := s.owner(t)
	region, key := alloc(t, o, 100, both)
	alloc(t, o, 4096, both) // may be a neighbour
	c := s.connect(t, o)
	require.NoError(t, c.do(c.read(key, 92, 8)).Err)
	require.NoError(t, c.do(c.write(key, 99, 1)).Err)
	require.NoError(t, c.do(c.write(key, 5000, 0)).Err, "no bytes are never outside")
	for _, r := range []struct{ off, n uint64 }{
		{100, 1}, {93, 8}, {0, 101}, {1 << 40, 8}, {math.MaxUint64, 8}, {math.MaxUint64 - 7, 8}, {math.MaxUint64 - 7, 16}, {4096, 8},
	} {
		for _, op := range []fabric.Op{fabric.Read, fabric.Write} {
			refused(t, s, o, func(c *side) fabric.WR {
				copy(c.local.Bytes(), "outside, all of it")
				return fabric.WR{Op: op, Local: c.local, LLen: r.n, Remote: key, ROff: r.off}
			}, "beyond the end")
		}
	}
	longer := key
	longer.Len = 4096
	refused(t, s, o, func(c *side) fabric.WR { return c.read(longer, 200, 8) }, "a key that was lengthened")
	assert.Equal(t, make([]byte, 99), o.call(t, request{Do: "load", Region: region, N: 99}).Bytes)
}

func testKeys(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 4096, both)
	_, readable := alloc(t, o, 4096, fabric.RemoteRead)
	_, writable := alloc(t, o, 4096, fabric.RemoteWrite)
	_, private := alloc(t, o, 4096, 0)
	c := s.connect(t, o)
	require.NoError(t, c.do(c.read(readable, 0, 8)).Err)
	require.NoError(t, c.do(c.write(writable, 0, 8)).Err)
	wrong := func(change func(k *fabric.Key)) fabric.Key {
		k := key
		change(&k)
		return k
	}
	for what, k := range map[string]fabric.Key{
		"wrong rkey":        wrong(func(k *fabric.Key) { k.Rkey++ }),
		"wrong nonce":       wrong(func(k *fabric.Key) { k.Nonce++ }),
		"unknown region":    wrong(func(k *fabric.Key) { k.ID += 1000 }),
		"another region's":  wrong(func(k *fabric.Key) { k.ID = readable.ID }),
		"no key":            {},
		"of private memory": private,
	} {
		refused(t, s, o, func(c *side) fabric.WR { return c.read(k, 0, 8) }, what)
		refused(t, s, o, func(c *side) fabric.WR { return c.write(k, 0, 8) }, what)
	}
	refused(t, s, o, func(c *side) fabric.WR { return c.write(readable, 0, 8) }, "Write to what may be read")
	refused(t, s, o, func(c *side) fabric.WR { return c.read(writable, 0, 8) }, "Read of what may be written")
	// A connection that has used the right key knows the region, and checks later keys all the same.
	for what, change := range map[string]func(k *fabric.Key){
		"wrong rkey, region in use":  func(k *fabric.Key) { k.Rkey++ },
		"wrong nonce, region in use": func(k *fabric.Key) { k.Nonce++ },
	} {
		c := s.connect(t, o)
		require.NoError(t, c.do(c.write(key, 0, 8)).Err)
		require.ErrorIs(t, c.do(c.write(wrong(change), 0, 8)).Err, fabric.ErrAccess, what)
	}
	for what, test := range map[string]struct {
		good, bad func(c *side) fabric.WR
	}{
		"Write to what was read": {
			func(c *side) fabric.WR { return c.read(readable, 0, 8) }, func(c *side) fabric.WR { return c.write(readable, 0, 8) },
		},
		"Read of what was written": {
			func(c *side) fabric.WR { return c.write(writable, 0, 8) }, func(c *side) fabric.WR { return c.read(writable, 0, 8) },
		},
	} {
		c := s.connect(t, o)
		require.NoError(t, c.do(test.good(c)).Err)
		require.ErrorIs(t, c.do(test.bad(c)).Err, fabric.ErrAccess, what)
	}
	assert.NotEqual(t, key.Rkey, readable.Rkey)
	refused(t, s, o, func(c *side) fabric.WR {
		own, err := c.d.Alloc(4096, both)
		require.NoError(t, err)
		return c.read(own.Key(), 0, 8)
	}, "a key of one's own")
}

// testTearing: words are whole if one end writes them while the other reads, in
// both directions.
func testTearing(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, 4096, both)
	rounds := s.rounds(5000)
	o.call(t, request{Do: "churn", Region: region})
	seen := map[uint64]bool{}
	// The owner's goroutine may be late on a busy machine.
	for n, end := 0, time.Now().Add(patience); n < rounds || (len(seen) < 3 && time.Now().Before(end)); n++ {
		require.NoError(t, c.do(c.read(key, 0, 4096)).Err)
		seen[words.Load(c.local.Bytes(), 0)] = true
		for at := 0; at < 4096; at += words.Size {
			if w := words.Load(c.local.Bytes(), at); torn(w) {
				require.Failf(t, "a torn word was read", "%x", w)
			}
		}
	}
	require.NotZero(t, o.call(t, request{Do: "still"}).N)
	require.GreaterOrEqual(t, len(seen), 3, "the owner has written nothing meanwhile")
	o.call(t, request{Do: "watch", Region: region})
	for i := range rounds {
		for at := 0; at < 4096; at += words.Size {
			words.Store(c.local.Bytes(), at, equalBytes(uint64(i)))
		}
		require.NoError(t, c.do(c.write(key, 0, 4096)).Err)
	}
	require.Zero(t, o.call(t, request{Do: "still"}).N, "torn words were written")
}

// rounds returns how often a test repeats something that takes about 10 µs: a tenth of n in short mode.
func (s *suite) rounds(n int) int {
	if testing.Short() {
		n /= 10
	}
	return n
}

// testFenceUnderFire: a Write that has succeeded is in memory when Fence returns; a Read returns nothing that was
// written after Fence.
func testFenceUnderFire(t *testing.T, s *suite) {
	o := s.owner(t)
	fenced := 0
	rounds := max(s.rounds(20), 8)
	for round := range rounds {
		region, key := alloc(t, o, 2*gunnerPart, both)
		var gunners [2]*gunner
		for i := range gunners {
			gunners[i] = s.fire(t, o, key, i)
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		there := o.call(t, request{Do: "fence", Region: region}).Bytes
		for i, g := range gunners {
			select {
			case <-g.over:
			case <-time.After(patience):
				require.Failf(t, "operations on a fenced region go on", "round %d, connection %d", round, i)
			}
			require.False(t, g.secret, "a Read brings what was written after Fence had returned")
			n := g.done.Load()
			first := binary.NativeEndian.Uint64(there[i*gunnerPart:])
			last := binary.NativeEndian.Uint64(there[(i+1)*gunnerPart-words.Size:])
			require.GreaterOrEqual(t, min(first, last), n, "round %d: a Write that has succeeded is not there", round)
			if first != last {
				fenced++
			}
		}
		o.call(t, request{Do: "close region", Region: region})
	}
	t.Logf("%d of %d connections were fenced in the middle of a Write", fenced, 2*rounds)
}

// gunnerPart is the number of bytes of the region that a gunner writes. The first and the last word have the number
// of the Write.
const gunnerPart = localSize / 2

// A gunner writes to its part of a region and reads it, again and again, until an operation fails or the test ends.
type gunner struct {
	done   atomic.Uint64 // the number of the last Write that has succeeded
	over   chan struct{} // closed at the end
	secret bool          // a Read has returned what the owner writes after a fence; valid once over is closed
}

// fire starts a gunner, and returns after its first success. On a busy machine the owner may take longer for the
// first operation than fabric.Timeout; then fire tries another connection.
func (s *suite) fire(t *testing.T, o owner, key fabric.Key, part int) *gunner {
	for end := time.Now().Add(patience); ; {
		c := s.connect(t, o)
		write := fabric.WR{Op: fabric.Write, Flags: fabric.Signal, Local: c.local, LLen: gunnerPart, Remote: key, ROff: uint64(part * gunnerPart)}
		g := &gunner{over: make(chan struct{})}
		var stop atomic.Bool
		failed := make(chan error, 1)
		go func() {
			defer close(g.over)
			failed <- g.run(c, write, &stop)
		}()
		// The gunner ends before its memory is unmapped.
		t.Cleanup(func() { stop.Store(true); <-g.over })
		for g.done.Load() == 0 && len(failed) == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		if g.done.Load() > 0 {
			return g
		}
		err := <-failed
		require.ErrorIs(t, err, fabric.ErrTimeout, "the first operation fails")
		require.True(t, time.Now().Before(end), "no operation succeeds")
	}
}

// run returns the error of the first failed operation, nil if stop was set.
func (g *gunner) run(c *side, write fabric.WR, stop *atomic.Bool) error {
	read := write
	read.Op = fabric.Read
	mem := c.local.Bytes()
	for n := uint64(1); !stop.Load(); n++ {
		words.Store(mem, 0, n)
		words.Store(mem, gunnerPart-words.Size, n)
		if err := outcome(c, write); err != nil {
			return err
		}
		g.done.Store(n)
		if err := outcome(c, read); err != nil {
			return err
		}
		for at := 0; at < gunnerPart; at += words.Size {
			if words.Load(mem, at) == secret {
				g.secret = true
				return nil
			}
		}
	}
	return nil
}

// outcome carries out an operation outside the test's goroutine, and returns its error.
func outcome(c *side, w fabric.WR) error {
	if n, err := c.e.Post([]fabric.WR{w}); n != 1 {
		return err
	}
	wc := c.completion(patience)
	if wc == nil {
		return errors.New("no completion")
	}
	return wc.Err
}

// testCloseRegion: a closed region's key reaches nothing, and other regions are not affected.
func testCloseRegion(t *testing.T, s *suite) {
	o := s.owner(t)
	region, key := alloc(t, o, 4096, both)
	other, otherKey := alloc(t, o, 4096, both)
	c := s.connect(t, o)
	require.NoError(t, c.do(c.read(key, 0, 64)).Err)
	require.NoError(t, c.do(c.read(otherKey, 0, 64)).Err)
	o.call(t, request{Do: "close region", Region: region})
	for range 4 {
		alloc(t, o, 4096, both) // may take its place
	}
	refused(t, s, o, func(c *side) fabric.WR { return c.read(key, 0, 8) }, "closed")
	refused(t, s, o, func(c *side) fabric.WR { return c.write(key, 0, 8) }, "closed")
	require.ErrorIs(t, c.do(c.write(key, 0, 8)).Err, fabric.ErrAccess, "by a connection that knows it")
	c = s.connect(t, o)
	require.NoError(t, c.do(c.write(otherKey, 0, 64)).Err)
	o.call(t, request{Do: "fence", Region: other})
	require.ErrorIs(t, c.do(c.read(otherKey, 0, 8)).Err, fabric.ErrAccess, "fenced")
}
