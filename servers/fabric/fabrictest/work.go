package fabrictest

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// foreign is a region of no provider.
type foreign struct{}

func (foreign) Bytes() []byte   { return nil }
func (foreign) Key() fabric.Key { return fabric.Key{} }
func (foreign) Fence() error    { return nil }
func (foreign) Close() error    { return nil }

// testRequests: malformed work requests are not taken, and do not harm the endpoint.
func testRequests(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	_, key := alloc(t, o, 4096, both)
	caps := c.d.Caps()
	require.GreaterOrEqual(t, caps.MaxSend, 1024)
	require.GreaterOrEqual(t, caps.MaxInline, 16)
	closed, err := c.d.Alloc(4096, 0)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	require.NoError(t, closed.Close(), "twice")
	d, err := s.p.Open()
	require.NoError(t, err)
	defer d.Close()
	others, err := d.Alloc(4096, 0)
	require.NoError(t, err)
	good := c.read(key, 0, 8)
	for what, change := range map[string]func(w *fabric.WR){
		"no operation":                func(w *fabric.WR) { w.Op = 0 },
		"an unknown operation":        func(w *fabric.WR) { w.Op = fabric.Recv + 1 },
		"an unknown flag":             func(w *fabric.WR) { w.Flags = 1 << 7 },
		"Notify of a Read":            func(w *fabric.WR) { w.Flags = fabric.Notify },
		"Inline of a Read":            func(w *fabric.WR) { w.Flags = fabric.Inline },
		"a large Inline":              func(w *fabric.WR) { w.Op, w.Flags, w.LLen = fabric.Write, fabric.Inline, uint64(caps.MaxInline)+1 },
		"a large Send":                func(w *fabric.WR) { w.Op, w.LLen = fabric.Send, uint64(caps.MaxSend)+1 },
		"no local memory":             func(w *fabric.WR) { w.Local = nil },
		"memory of no provider":       func(w *fabric.WR) { w.Local = foreign{} },
		"memory of another domain":    func(w *fabric.WR) { w.Local = others },
		"closed memory":               func(w *fabric.WR) { w.Local = closed },
		"behind the local memory":     func(w *fabric.WR) { w.LOff = localSize - 7 },
		"far behind the local memory": func(w *fabric.WR) { w.LOff = math.MaxUint64 - 7 },
		"more than 4 GiB":             func(w *fabric.WR) { w.LLen = math.MaxUint64 },
		"a Recv without memory":       func(w *fabric.WR) { w.Op, w.Local = fabric.Recv, nil },
	} {
		bad := good
		change(&bad)
		n, err := c.e.Post([]fabric.WR{bad})
		assert.Zero(t, n, what)
		assert.ErrorIs(t, err, fabric.ErrInvalid, what)
		// Requests before the malformed one are carried out, those after it are not.
		first := good
		first.Flags = fabric.Signal
		n, err = c.e.Post([]fabric.WR{first, bad, first})
		assert.Equal(t, 1, n, what)
		assert.ErrorIs(t, err, fabric.ErrInvalid, what)
		wc := c.completion(patience)
		require.NotNil(t, wc, what)
		assert.NoError(t, wc.Err, what)
	}
	require.NoError(t, c.do(good).Err)
	for _, n := range []int{0, -1, math.MaxInt} {
		_, err := c.d.Alloc(n, 0)
		assert.Error(t, err, "a region of %d bytes", n)
	}
	for _, n := range []int{0, -1} {
		_, err := c.d.NewQueue(n)
		assert.Error(t, err, "a queue for %d completions", n)
	}
	_, err = c.d.Listen("")
	assert.Error(t, err)
}

// testDepth: an endpoint has at most Depth operations under way, and each polled completion makes room for one more.
func testDepth(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 4096, both)
	c := s.connect(t, o, func(o *fabric.EndpointOptions) { o.Depth, o.Recvs = 5, 3 })
	w := make([]fabric.WR, 20)
	for i := range w {
		w[i] = c.write(key, 8*i, 8)
		w[i].ID, w[i].Flags = uint64(i), fabric.Signal
	}
	n, err := c.e.Post(w)
	require.ErrorIs(t, err, fabric.ErrAgain)
	require.Equal(t, 5, n)
	for i := range uint64(5) {
		n, err = c.e.Post(w)
		require.ErrorIs(t, err, fabric.ErrAgain)
		require.Zero(t, n)
		wc := c.completion(patience)
		require.NotNil(t, wc)
		require.Equal(t, fabric.WC{ID: i, Op: fabric.Write, Len: 8}, *wc)
		w[0].ID = 100
		n, err = c.e.Post(w)
		require.ErrorIs(t, err, fabric.ErrAgain)
		require.Equal(t, 1, n)
		w[0].ID = 0
	}
	for range 5 {
		require.EqualValues(t, 100, c.completion(patience).ID)
	}
	r := make([]fabric.WR, 10)
	for i := range r {
		r[i] = fabric.WR{Op: fabric.Recv, Local: c.local, LLen: 8}
	}
	n, err = c.e.Post(r)
	require.ErrorIs(t, err, fabric.ErrAgain)
	require.Equal(t, 3, n)
	require.NoError(t, c.do(c.read(key, 0, 8)).Err, "Recvs take no room of other operations")
}

// testUnsignalled: an operation without Signal has no completion, and holds its place until the completion of a later
// operation has been polled.
func testUnsignalled(t *testing.T, s *suite) {
	o := s.owner(t)
	region, key := alloc(t, o, 4096, both)
	c := s.connect(t, o, func(o *fabric.EndpointOptions) { o.Depth = 4 })
	copy(c.local.Bytes(), "12345678")
	for round := range 50 {
		at := 8 * round
		w := make([]fabric.WR, 5)
		for i := range w {
			w[i] = fabric.WR{Op: fabric.Write, Local: c.local, LLen: 8, Remote: key, ROff: uint64(at)}
		}
		w[3].Flags, w[3].ID = fabric.Signal, uint64(round)
		n, err := c.e.Post(w)
		require.Equal(t, 4, n)
		require.ErrorIs(t, err, fabric.ErrAgain)
		wc := c.completion(patience)
		require.NotNil(t, wc)
		require.EqualValues(t, round, wc.ID)
		require.Equal(t, "12345678", string(o.call(t, request{Do: "load", Region: region, Off: at, N: 8}).Bytes))
	}
	// No completion follows these operations, so they keep their places.
	w := make([]fabric.WR, 4)
	for i := range w {
		w[i] = c.write(key, 0, 8)
	}
	c.post(w...)
	assert.Nil(t, c.completion(50*time.Millisecond))
	n, err := c.e.Post(w)
	require.Zero(t, n)
	require.ErrorIs(t, err, fabric.ErrAgain)
}

// testQueueBound: endpoints that share a queue together have at most as many operations under way as the queue has
// room for, and all of them complete.
func testQueueBound(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 4096, both)
	c := s.connect(t, o)
	q, err := c.d.NewQueue(10)
	require.NoError(t, err)
	var ends [3]*side
	for i := range ends {
		ends[i] = s.connectFrom(t, c.d, o, func(o *fabric.EndpointOptions) { o.Send, o.Recv = q, q })
		ends[i].q = q
	}
	taken := 0
	for _, e := range ends {
		for taken <= 100 {
			w := e.write(key, 0, 8)
			w.Flags = fabric.Signal
			n, err := e.e.Post([]fabric.WR{w})
			taken += n
			if n == 0 {
				require.ErrorIs(t, err, fabric.ErrAgain)
				break
			}
		}
	}
	require.Equal(t, 10, taken)
	for range 10 {
		require.NotNil(t, ends[0].completion(patience))
	}
	require.Nil(t, ends[0].completion(20*time.Millisecond))
	for _, e := range ends {
		require.NoError(t, e.do(e.read(key, 0, 8)).Err)
	}
}

// testFlush: all operations after a failure complete with ErrFlushed before Done is closed, with and without Signal,
// Recvs too.
func testFlush(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 4096, both)
	c := s.connect(t, o)
	wrong := c.read(key, 4096, 8)
	recv := fabric.WR{Op: fabric.Recv, Local: c.local, LLen: 8}
	w := []fabric.WR{recv, c.write(key, 0, 8), c.read(key, 8, 8), wrong, c.write(key, 16, 8), c.read(key, 24, 8), {Op: fabric.Send, Local: c.local, LLen: 8}}
	w[2].Flags = fabric.Signal
	for i := range w {
		w[i].ID = uint64(i)
	}
	// The failure may come before the last of them are posted.
	n, err := c.e.Post(w)
	if n < len(w) {
		require.ErrorIs(t, err, fabric.ErrAccess)
	}
	require.GreaterOrEqual(t, n, 4)
	<-c.e.Done()
	got := map[uint64]error{}
	var order []uint64
	for {
		var wc [1]fabric.WC
		if c.q.Poll(wc[:]) == 0 {
			break // all completions are in the queue when Done is closed
		}
		assert.Equal(t, w[wc[0].ID].Op, wc[0].Op)
		got[wc[0].ID] = wc[0].Err
		order = append(order, wc[0].ID)
	}
	expected := map[uint64]error{0: fabric.ErrFlushed, 2: nil, 3: fabric.ErrAccess, 4: fabric.ErrFlushed, 5: fabric.ErrFlushed, 6: fabric.ErrFlushed}
	for id := range expected {
		if id >= uint64(n) {
			delete(expected, id)
		}
	}
	require.Equal(t, expected, got)
	require.Len(t, order, len(expected), "twice")
	require.ErrorIs(t, c.e.Err(), fabric.ErrAccess)
	after := c.e.Close()
	assert.NoError(t, after)
	assert.ErrorIs(t, c.e.Err(), fabric.ErrAccess, "Close changes nothing any more")
}

// testCloseEndpoint: Close flushes operations under way, and ends the peer's endpoint.
func testCloseEndpoint(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	c.post(fabric.WR{Op: fabric.Recv, Local: c.local, LLen: 8}, fabric.WR{Op: fabric.Send, Local: c.local, LLen: 8})
	require.NoError(t, c.e.Err())
	require.NoError(t, c.e.Close())
	<-c.e.Done()
	require.ErrorIs(t, c.e.Err(), fabric.ErrClosed)
	for range 2 {
		wc := c.completion(time.Second)
		require.NotNil(t, wc)
		require.ErrorIs(t, wc.Err, fabric.ErrFlushed)
	}
	require.NoError(t, c.e.Close(), "twice")
	n, err := c.e.Post([]fabric.WR{{Op: fabric.Send, Local: c.local, LLen: 8}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	resp := o.call(t, request{Do: "ended", Conn: c.peer, Limit: patience})
	assert.Equal(t, fabric.ErrPeer.Error(), string(resp.Bytes))

	c = s.connectFrom(t, c.d, o)
	o.call(t, request{Do: "close conn", Conn: c.peer})
	require.ErrorIs(t, c.ended(), fabric.ErrPeer)
}

// testCloseDomain: a closed domain's endpoints, queues and listeners end, and the domain creates no new ones.
func testCloseDomain(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	l, err := c.d.Listen(s.p.Addr(t.TempDir()))
	require.NoError(t, err)
	waits, accepts := make(chan error), make(chan error)
	go func() { waits <- c.q.Wait(t.Context(), 0) }()
	go func() {
		_, err := l.Accept(t.Context())
		accepts <- err
	}()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, c.d.Close())
	if err := <-waits; err != nil { // the end of the endpoint may have woken Wait first
		assert.ErrorIs(t, err, fabric.ErrClosed)
	}
	assert.ErrorIs(t, <-accepts, fabric.ErrClosed)
	assert.ErrorIs(t, c.q.Wait(t.Context(), 0), fabric.ErrClosed)
	<-c.e.Done()
	require.ErrorIs(t, c.e.Err(), fabric.ErrClosed)
	_, err = c.d.Alloc(8, 0)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	_, err = c.d.NewQueue(8)
	assert.ErrorIs(t, err, fabric.ErrClosed)
	_, err = c.d.Listen(s.p.Addr(t.TempDir()))
	assert.ErrorIs(t, err, fabric.ErrClosed)
	_, _, err = c.d.Dial(t.Context(), o.addr(), nil, fabric.EndpointOptions{Send: c.q, Recv: c.q})
	assert.Error(t, err)
	o.call(t, request{Do: "ended", Conn: c.peer, Limit: patience})
}
