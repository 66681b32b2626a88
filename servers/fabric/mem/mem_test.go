package mem

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// TestRoundTrip: a connection, a Write with Notify, a Read of what it has written, a Send.
func TestRoundTrip(t *testing.T) {
	n := NewNetwork()
	a, b := n.Open(), n.Open()
	defer a.Close()
	defer b.Close()
	aq, err := a.NewQueue(64)
	require.NoError(t, err)
	bq, err := b.NewQueue(64)
	require.NoError(t, err)
	l, err := b.Listen("b")
	require.NoError(t, err)
	shared, err := b.Alloc(4096, fabric.RemoteRead|fabric.RemoteWrite)
	require.NoError(t, err)
	room, err := b.Alloc(64, 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() {
		in, err := l.Accept(ctx)
		if assert.NoError(t, err) {
			e, err := in.Accept(fabric.EndpointOptions{Send: bq, Recv: bq}, append(in.Hello(), '!'))
			if assert.NoError(t, err) {
				_, err = e.Post([]fabric.WR{{ID: 7, Op: fabric.Recv, Local: room, LLen: 64}})
				assert.NoError(t, err)
			}
		}
	}()
	e, answer, err := a.Dial(ctx, "b", []byte("hi"), fabric.EndpointOptions{Send: aq, Recv: aq})
	require.NoError(t, err)
	require.Equal(t, "hi!", string(answer))
	local, err := a.Alloc(4096, 0)
	require.NoError(t, err)
	copy(local.Bytes(), "words")
	_, err = e.Post([]fabric.WR{
		{ID: 1, Op: fabric.Write, Flags: fabric.Notify, Local: local, LLen: 8, Remote: shared.Key(), ROff: 16},
		{ID: 2, Op: fabric.Read, Flags: fabric.Signal, Local: local, LOff: 8, LLen: 8, Remote: shared.Key(), ROff: 16},
		{ID: 3, Op: fabric.Send, Flags: fabric.Signal, Local: local, LOff: 8, LLen: 5},
	})
	require.NoError(t, err)
	for _, q := range []fabric.Queue{aq, bq} {
		require.NoError(t, q.Wait(ctx, 10))
	}
	var wc [4]fabric.WC
	require.Eventually(t, func() bool { return bq.Poll(wc[:1]) == 1 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, fabric.WC{ID: 7, Op: fabric.Recv, Len: 5}, wc[0])
	require.Equal(t, 2, aq.Poll(wc[:]))
	assert.Equal(t, fabric.WC{ID: 2, Op: fabric.Read, Len: 8}, wc[0])
	assert.Equal(t, fabric.WC{ID: 3, Op: fabric.Send, Len: 5}, wc[1])
	assert.Equal(t, "words", string(local.Bytes()[8:13]))
	assert.Equal(t, "words", string(room.Bytes()[:5]))
	require.NoError(t, b.Close())
	<-e.Done()
	assert.ErrorIs(t, e.Err(), fabric.ErrPeer)
}
