package fabrictest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// send returns a Send of the first n bytes of local memory.
func (c *side) send(n int) fabric.WR {
	return fabric.WR{Op: fabric.Send, Local: c.local, LLen: uint64(n)}
}

// testSend: Sends of all lengths take Recvs in order, in both directions.
func testSend(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	max := c.d.Caps().MaxSend
	for _, n := range []int{0, 1, 8, 100, max} {
		o.call(t, request{Do: "recv", Conn: c.peer, N: 1, Off: recvRoom})
		for i := range n {
			c.local.Bytes()[i] = byte(i * 7)
		}
		require.NoError(t, c.do(c.send(n)).Err)
		got := o.call(t, request{Do: "poll", N: 1, Limit: patience}).Got
		require.Len(t, got, 1)
		require.Equal(t, fabric.Recv, got[0].Op)
		require.Empty(t, got[0].Err)
		require.EqualValues(t, n, got[0].Len)
		assert.True(t, bytes.Equal(c.local.Bytes()[:n], got[0].Bytes))
	}
	for i := range uint64(3) {
		c.post(fabric.WR{Op: fabric.Recv, Local: c.local, LOff: 100 * i, LLen: 100})
	}
	for i := range 3 {
		o.call(t, request{Do: "send", Conn: c.peer, Bytes: fmt.Appendf(nil, "message %d", i)})
		wc := c.completion(patience)
		require.NotNil(t, wc)
		require.Equal(t, fabric.WC{ID: c.last - 2 + uint64(i), Op: fabric.Recv, Len: 9}, *wc)
		assert.Equal(t, fmt.Sprintf("message %d", i), string(c.local.Bytes()[100*i:100*i+9]))
	}
	assert.Len(t, o.call(t, request{Do: "poll", N: 3, Limit: patience}).Got, 3)
	// The Recv may come later than the Send, within fabric.Timeout.
	c.post(c.send(8))
	time.Sleep(50 * time.Millisecond)
	o.call(t, request{Do: "recv", Conn: c.peer, N: 1, Off: 100})
	require.Len(t, o.call(t, request{Do: "poll", N: 1, Limit: patience}).Got, 1)
	require.NoError(t, c.e.Err())
}

// testSendTooLarge: a Send that does not fit its Recv ends the connection, and writes nothing beyond the Recv.
func testSendTooLarge(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	o.call(t, request{Do: "recv", Conn: c.peer, N: 1, Off: 99})
	require.ErrorIs(t, c.do(c.send(100)).Err, fabric.ErrAccess)
	require.ErrorIs(t, c.ended(), fabric.ErrAccess)
	got := o.call(t, request{Do: "poll", N: 1, Limit: patience}).Got
	require.Len(t, got, 1)
	assert.Equal(t, fabric.ErrAccess.Error(), got[0].Err)
	o.call(t, request{Do: "ended", Conn: c.peer, Limit: patience})
}

// testSendWithoutRecv: the endpoint ends after fabric.Timeout, and operations after the Send are flushed.
func testSendWithoutRecv(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	_, key := alloc(t, o, 4096, both)
	began := time.Now()
	first := c.post(c.send(8), c.send(8), c.write(key, 0, 8))
	require.ErrorIs(t, c.ended(), fabric.ErrTimeout)
	if s.p.RealTime {
		took := time.Since(began)
		assert.Greater(t, took, fabric.Timeout*9/10)
		assert.Less(t, took, 3*fabric.Timeout)
	}
	for i, want := range []error{fabric.ErrTimeout, fabric.ErrFlushed, fabric.ErrFlushed} {
		wc := c.completion(patience)
		require.NotNil(t, wc)
		assert.Equal(t, first+uint64(i), wc.ID)
		assert.ErrorIs(t, wc.Err, want)
	}
	o.call(t, request{Do: "ended", Conn: c.peer, Limit: patience})
}

// testOrder: Writes precede a later Send of the endpoint: the receiver of the Send sees them.
func testOrder(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, 64<<10, both)
	for i := range s.rounds(300) {
		o.call(t, request{Do: "recv", Conn: c.peer, N: 1, Off: 8})
		n := 8 << (i % 14)
		for at := 0; at < n; at += words.Size {
			words.Store(c.local.Bytes(), at, uint64(i))
		}
		send := c.send(8)
		send.Flags = fabric.Signal
		c.post(c.write(key, 0, n/2), fabric.WR{Op: fabric.Write, Local: c.local, LOff: uint64(n / 2), LLen: uint64(n - n/2), Remote: key, ROff: uint64(n / 2)}, send)
		require.Len(t, o.call(t, request{Do: "poll", N: 1, Limit: patience}).Got, 1)
		got := o.call(t, request{Do: "load", Region: region, N: n}).Bytes
		require.True(t, bytes.Equal(c.local.Bytes()[:n], got), "%d bytes", n)
		wc := c.completion(patience)
		require.NotNil(t, wc)
		require.NoError(t, wc.Err)
	}
}

// testInline: the memory may be reused once Post returns, even if the operation has to wait.
func testInline(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, 4096, both)
	n := c.d.Caps().MaxInline
	fill := func(b byte) {
		for i := range n {
			c.local.Bytes()[i] = b
		}
	}
	wait := c.send(8) // no operation overtakes it
	inline := c.write(key, 0, n)
	inline.Flags = fabric.Inline
	message := c.send(n)
	message.Flags = fabric.Inline
	fill('a')
	c.post(wait, inline)
	fill('b')
	message.Flags |= fabric.Signal
	c.post(message)
	fill('c')
	time.Sleep(20 * time.Millisecond)
	o.call(t, request{Do: "recv", Conn: c.peer, N: 2, Off: recvRoom})
	got := o.call(t, request{Do: "poll", N: 2, Limit: patience}).Got
	require.Len(t, got, 2)
	assert.Equal(t, bytes.Repeat([]byte{'b'}, n), got[1].Bytes)
	require.NoError(t, c.completion(patience).Err)
	assert.Equal(t, bytes.Repeat([]byte{'a'}, n), o.call(t, request{Do: "load", Region: region, N: n}).Bytes)
}

// waits reports whether Wait returns nil within limit.
func (c *side) waits(limit time.Duration, spin int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.q.Wait(ctx, spin) == nil
}

// testNotify: a notification ends a Wait, is remembered if nobody waits, and counts once. testNotify also checks that
// a Write with Notify has been placed.
func testNotify(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	for _, spin := range []int{0, 10, 100_000} {
		o.call(t, request{Do: "notify", Conn: c.peer})
		require.True(t, c.waits(patience, spin), "before Wait")
		woken := make(chan bool)
		go func() { woken <- c.waits(patience, spin) }()
		time.Sleep(5 * time.Millisecond)
		o.call(t, request{Do: "notify", Conn: c.peer})
		require.True(t, <-woken, "during Wait")
		quiet := 0
		for range 5 {
			if !c.waits(5*time.Millisecond, spin) {
				quiet++
			}
		}
		require.GreaterOrEqual(t, quiet, 3, "Wait returns without a reason")
	}
	s.pingPong(t, o, c, s.rounds(3000), 0)
	s.pingPong(t, o, s.connectFrom(t, c.d, o), s.rounds(3000), 50)
}

// pingPong sends a number to the owner and back, each time with a Write that wakes the other end. spin is how often
// both ends check before they sleep.
func (s *suite) pingPong(t *testing.T, o owner, c *side, rounds, spin int) {
	t.Helper()
	region, key := alloc(t, o, 4096, both)
	back, err := c.d.Alloc(4096, both)
	require.NoError(t, err)
	o.call(t, request{Do: "pong", Conn: c.peer, Region: region, Key: back.Key(), N: spin, Limit: patience})
	for i := range uint64(rounds) {
		n := i + 1
		if int(n) == rounds {
			n = lastNumber
		}
		words.Store(c.local.Bytes(), 0, n)
		w := c.write(key, 0, 8)
		w.Flags = fabric.Signal | fabric.Notify
		c.post(w)
		for completed := false; !completed || words.Load(back.Bytes(), 0) != n; {
			var wc [1]fabric.WC
			if c.q.Poll(wc[:]) == 1 {
				require.NoError(t, wc[0].Err)
				completed = true
				continue
			}
			if words.Load(back.Bytes(), 0) == n && completed {
				break
			}
			require.True(t, c.waits(patience, spin), "a wake was lost in round %d, or the connection: %v", i, c.e.Err())
		}
	}
	require.EqualValues(t, lastNumber, o.call(t, request{Do: "still"}).N)
}

// testWait: Wait returns for a completion, for Wake, and at the end of its context; an ended context loses no later
// event.
func testWait(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	_, key := alloc(t, o, 4096, both)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.q.Wait(ctx, 10), context.DeadlineExceeded)
	require.Error(t, c.q.Wait(ctx, 10))
	read := c.read(key, 0, 8)
	read.Flags = fabric.Signal
	c.post(read)
	require.True(t, c.waits(patience, 0))
	require.True(t, c.waits(patience, 0), "until it is polled")
	require.NotNil(t, c.completion(patience))
	require.False(t, c.waits(20*time.Millisecond, 0) && c.waits(20*time.Millisecond, 0))
	c.q.Wake()
	require.True(t, c.waits(patience, 0))
	woken := make(chan bool)
	go func() { woken <- c.waits(patience, 0) }()
	time.Sleep(5 * time.Millisecond)
	c.q.Wake()
	require.True(t, <-woken)
	c.post(fabric.WR{Op: fabric.Recv, Local: c.local, LLen: 8})
	go func() { woken <- c.waits(patience, 0) }()
	time.Sleep(5 * time.Millisecond)
	o.call(t, request{Do: "close conn", Conn: c.peer})
	require.True(t, <-woken, "the Recv has been flushed")
}
