//go:build verbs

package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// pair returns two connected endpoints of two domains, and what the first one needs for operations.
func pair(t *testing.T) (d *Domain, q fabric.Queue, e fabric.Endpoint, local fabric.Region, key fabric.Key, peer fabric.Endpoint) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	var ends [2]*Domain
	var queues [2]fabric.Queue
	for i := range ends {
		var err error
		ends[i], err = Open(options)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, ends[i].Close()) })
		queues[i], err = ends[i].NewQueue(64)
		require.NoError(t, err)
	}
	l, err := ends[1].Listen(options.Addr + ":0")
	require.NoError(t, err)
	accepted := make(chan fabric.Endpoint, 1)
	go func() {
		in, err := l.Accept(ctx)
		if assert.NoError(t, err) {
			e, err := in.Accept(fabric.EndpointOptions{Send: queues[1], Recv: queues[1]}, nil)
			assert.NoError(t, err)
			accepted <- e
		}
	}()
	e, _, err = ends[0].Dial(ctx, l.Addr(), nil, fabric.EndpointOptions{Send: queues[0], Recv: queues[0]})
	require.NoError(t, err)
	local, err = ends[0].Alloc(4096, 0)
	require.NoError(t, err)
	shown, err := ends[1].Alloc(4096, fabric.RemoteRead|fabric.RemoteWrite)
	require.NoError(t, err)
	return ends[0], queues[0], e, local, shown.Key(), <-accepted
}

// TestLostCompletions: operations whose completions libfabric loses are completed with the next operation, or when the
// endpoint ends.
func TestLostCompletions(t *testing.T) {
	d, q, e, local, key, peer := pair(t)
	write := fabric.WR{Op: fabric.Write, Flags: fabric.Signal, Local: local, LLen: 8, Remote: key}
	next := func() fabric.WC {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wc [1]fabric.WC
		for q.Poll(wc[:]) == 0 {
			require.NoError(t, q.Wait(ctx, 0))
		}
		return wc[0]
	}
	lost := 0
	d.lose = func(context uint64) bool { // set before any post, so no other goroutine reads it meanwhile
		last := context%numbers == 3
		if !last {
			lost++
		}
		return !last
	}
	for i := range uint64(4) {
		write.ID = i
		_, err := e.Post([]fabric.WR{write})
		require.NoError(t, err)
	}
	for i := range uint64(4) {
		require.Equal(t, fabric.WC{ID: i, Op: fabric.Write, Len: 8}, next())
	}
	require.Equal(t, 3, lost)
	for i := range uint64(3) { // all of these are lost
		write.ID = 10 + i
		_, err := e.Post([]fabric.WR{write})
		require.NoError(t, err)
	}
	require.NoError(t, peer.Close())
	require.Equal(t, fabric.WC{ID: 10, Op: fabric.Write, Err: fabric.ErrPeer}, next())
	require.Equal(t, fabric.WC{ID: 11, Op: fabric.Write, Err: fabric.ErrFlushed}, next())
	require.Equal(t, fabric.WC{ID: 12, Op: fabric.Write, Err: fabric.ErrFlushed}, next())
	require.ErrorIs(t, e.Err(), fabric.ErrPeer)
}

// TestKeyOfTheDevice: a key whose upper half is right is refused by the device, not only by this process.
func TestKeyOfTheDevice(t *testing.T) {
	if options.Provider == "tcp" {
		t.Skip("libfabric's tcp hangs up, and does not say why")
	}
	_, q, e, local, key, _ := pair(t)
	guess := key.Rkey%(1<<32) + 0x100
	key.Rkey = guess | seal(key.ID, guess, key.Nonce)
	_, err := e.Post([]fabric.WR{{Op: fabric.Read, Flags: fabric.Signal, Local: local, LLen: 8, Remote: key}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, q.Wait(ctx, 0))
	var wc [1]fabric.WC
	require.Equal(t, 1, q.Poll(wc[:]))
	assert.ErrorIs(t, wc[0].Err, fabric.ErrAccess)
}
