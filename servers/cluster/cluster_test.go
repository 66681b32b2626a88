package cluster

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompareAndSet(t *testing.T) {
	c, ctx := NewMemory(), t.Context()
	const adders, each = 8, 200
	var done sync.WaitGroup
	for range adders {
		done.Go(func() {
			for n := 0; n < each; {
				v, err := c.Get(ctx, "counter")
				assert.NoError(t, err)
				sum := 0
				fmt.Sscan(string(v.Data), &sum)
				if _, err := c.CompareAndSet(ctx, "counter", v.Revision, fmt.Append(nil, sum+1)); err == nil {
					n++
				} else {
					assert.ErrorIs(t, err, ErrChanged)
				}
			}
		})
	}
	done.Wait()
	v, err := c.Get(ctx, "counter")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(adders*each), string(v.Data))
	_, err = c.CompareAndSet(ctx, "counter", 0, []byte("x"))
	assert.ErrorIs(t, err, ErrChanged)
	other, err := c.CompareAndSet(ctx, "other", 0, []byte("x"))
	require.NoError(t, err)
	_, err = c.CompareAndSet(ctx, "counter", v.Revision, nil, Value{Name: "other", Revision: other - 1})
	assert.ErrorIs(t, err, ErrChanged)
	_, err = c.CompareAndSet(ctx, "counter", v.Revision, nil, Value{Name: "other", Revision: other}, Value{Name: "none"})
	require.NoError(t, err)
	_, err = c.CompareAndSet(ctx, "other", other, nil)
	require.NoError(t, err)
	list, _, err := c.List(ctx, "")
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestWatch(t *testing.T) {
	c, ctx := NewMemory(), t.Context()
	first, err := c.CompareAndSet(ctx, "a/1", 0, []byte("one"))
	require.NoError(t, err)
	w := c.Watch(ctx, "a/", first-1)
	_, err = c.CompareAndSet(ctx, "b", 0, []byte("elsewhere"))
	require.NoError(t, err)
	_, err = c.CompareAndSet(ctx, "a/1", first, nil)
	require.NoError(t, err)
	v := <-w
	assert.Equal(t, "one", string(v.Data))
	v = <-w
	assert.Equal(t, "a/1", v.Name)
	assert.Nil(t, v.Data)
	for range 3 * keptChanges {
		v, _ := c.Get(ctx, "b")
		c.CompareAndSet(ctx, "b", v.Revision, []byte("again"))
	}
	_, open := <-c.Watch(ctx, "", 1)
	assert.False(t, open, "changes that are not known any more end the watch")
	ended, cancel := context.WithCancel(ctx)
	list, at, err := c.List(ctx, "b")
	require.NoError(t, err)
	assert.Len(t, list, 1)
	w = c.Watch(ended, "", at)
	cancel()
	for range w {
	}
	w = c.Watch(ctx, "", at)
	require.NoError(t, c.Close())
	for range w {
	}
	_, err = c.Get(ctx, "b")
	assert.ErrorIs(t, err, ErrClosed)
}

func TestSessionsAndElections(t *testing.T) {
	c, ctx := NewMemory(), t.Context()
	var sessions []Session
	for range 3 {
		s, err := c.Session(ctx, time.Second)
		require.NoError(t, err)
		sessions = append(sessions, s)
	}
	_, err := sessions[0].Put(ctx, "nodes/0", []byte("here"))
	require.NoError(t, err)
	require.NoError(t, sessions[0].Campaign(ctx, "swat", []byte("0")))
	elected := make(chan int, 3)
	for i := 1; i < 3; i++ {
		go func() {
			if sessions[i].Campaign(ctx, "swat", fmt.Append(nil, i)) == nil {
				elected <- i
			}
		}()
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	s, err := c.Session(ctx, time.Second)
	require.NoError(t, err)
	assert.ErrorIs(t, s.Campaign(short, "swat", nil), context.DeadlineExceeded)
	assert.Empty(t, elected)
	require.NoError(t, sessions[0].Close())
	<-sessions[0].Done()
	v, err := c.Get(ctx, "nodes/0")
	require.NoError(t, err)
	assert.Zero(t, v.Revision, "what was bound to the session is gone")
	leader := <-elected
	v, err = c.Get(ctx, "swat")
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprint(leader), string(v.Data))
	assert.Empty(t, elected, "one leads at a time")
	require.NoError(t, sessions[leader].Resign(ctx, "swat"))
	assert.Equal(t, 3-leader, <-elected)
	_, err = sessions[0].Put(ctx, "x", nil)
	assert.ErrorIs(t, err, ErrSession)
}
