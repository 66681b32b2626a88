package fabrictest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// testKill: after the owner's death the endpoint ends, all operations complete, and Dial can connect to another
// owner.
func testKill(t *testing.T, s *suite) {
	for range max(2, s.rounds(10)) {
		o := s.owner(t)
		_, key := alloc(t, o, 4096, both)
		c := s.connect(t, o)
		idle := s.connectFrom(t, c.d, o)
		idle.post(fabric.WR{Op: fabric.Recv, Local: idle.local, LLen: 8})
		var posted, completed int
		var failures []error
		take := func(limit time.Duration) bool {
			wc := c.completion(limit)
			if wc == nil {
				return false
			}
			completed++
			if wc.Err != nil {
				failures = append(failures, wc.Err)
			}
			return true
		}
		var killed sync.WaitGroup
		killed.Go(func() {
			time.Sleep(5 * time.Millisecond)
			o.signal(t, "kill")
		})
		began := time.Now()
		for c.e.Err() == nil && time.Since(began) < patience {
			w := c.write(key, 0, 4096)
			w.Flags = fabric.Signal
			read := c.read(key, 0, 4096)
			read.Flags = fabric.Signal
			n, _ := c.e.Post([]fabric.WR{w, read, w, read})
			posted += n
			for take(0) {
			}
		}
		killed.Wait()
		assert.Less(t, time.Since(began), patience)
		for completed < posted && take(patience) {
		}
		require.Equal(t, posted, completed)
		for i, err := range failures {
			if i == 0 {
				assert.True(t, s.isDeath(err), "%v", err)
			} else {
				assert.ErrorIs(t, err, fabric.ErrFlushed)
			}
		}
		assert.True(t, s.isDeath(c.ended()), "%v", c.e.Err())
		assert.True(t, s.isDeath(idle.ended()), "%v", idle.e.Err())
		wc := idle.completion(patience)
		require.NotNil(t, wc)
		assert.ErrorIs(t, wc.Err, fabric.ErrFlushed)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, _, err := c.d.Dial(ctx, o.addr(), nil, fabric.EndpointOptions{Send: c.q, Recv: c.q})
		cancel()
		assert.Error(t, err)
		other := s.owner(t)
		_, key = alloc(t, other, 64, both)
		c = s.connectFrom(t, c.d, other)
		require.NoError(t, c.do(c.read(key, 0, 8)).Err)
	}
}

// isDeath reports whether an endpoint may end with err when the peer dies. In one process the peer has closed its
// domain: its regions may be gone before its endpoints.
func (s *suite) isDeath(err error) bool {
	return err == fabric.ErrPeer || err == fabric.ErrTimeout || (err == fabric.ErrAccess && !s.apart)
}

// testStopped: peers can read and write a stopped owner's memory if the provider is one-sided; otherwise they see
// ErrTimeout. After it continues, the owner serves again.
func testStopped(t *testing.T, s *suite) {
	if !s.apart {
		t.Skip("of a process")
	}
	o := s.owner(t)
	region, key := alloc(t, o, 4096, both)
	c := s.connect(t, o)
	require.NoError(t, c.do(c.read(key, 0, 64)).Err)
	o.signal(t, "stop")
	began := time.Now()
	copy(c.local.Bytes(), "while it is stopped")
	if c.d.Caps().OneSided {
		for time.Since(began) < fabric.Timeout*3/2 {
			require.NoError(t, c.do(c.write(key, 0, 64)).Err)
			require.NoError(t, c.do(c.read(key, 0, 64)).Err)
		}
		// No process is running that would take a Send.
		require.ErrorIs(t, c.do(c.send(8)).Err, fabric.ErrTimeout)
	} else {
		require.ErrorIs(t, c.do(c.write(key, 0, 64)).Err, fabric.ErrTimeout)
		require.Less(t, time.Since(began), 4*fabric.Timeout)
	}
	require.ErrorIs(t, c.ended(), fabric.ErrTimeout)
	o.signal(t, "continue")
	c = s.connectFrom(t, c.d, o)
	require.NoError(t, c.do(c.read(key, 0, 64)).Err)
	if c.d.Caps().OneSided {
		assert.Equal(t, "while it is stopped", string(o.call(t, request{Do: "load", Region: region, N: 19}).Bytes))
	}
}

// testOneSided: two peers that read at full speed cost the owner's process no processor time.
func testOneSided(t *testing.T, s *suite) {
	if !s.apart {
		t.Skip("of a process")
	}
	o := s.owner(t)
	_, key := alloc(t, o, 1<<20, both)
	first := s.connect(t, o)
	if !first.d.Caps().OneSided {
		t.Skip("the provider is not one-sided")
	}
	clients := []*side{first, s.connect(t, o)}
	var reads [2]int
	// The owner's processor time without Reads, mostly for the requests of the test: on an emulated processor that is
	// more than 1 % of a processor.
	before := o.call(t, request{Do: "cpu"}).CPU
	time.Sleep(time.Second)
	idle := o.call(t, request{Do: "cpu"}).CPU - before
	before = o.call(t, request{Do: "cpu"}).CPU
	began := time.Now()
	var fire sync.WaitGroup
	for i, c := range clients {
		read := c.read(key, 0, 1024)
		read.Flags = fabric.Signal
		fire.Go(func() {
			for (time.Since(began) < time.Second || (reads[i] <= 500 && time.Since(began) < patience)) && outcome(c, read) == nil {
				reads[i]++
			}
		})
	}
	fire.Wait()
	took := time.Since(began)
	spent := o.call(t, request{Do: "cpu"}).CPU - before
	t.Logf("%d and %d Reads in %v: the owner took %v, %v without", reads[0], reads[1], took.Round(time.Millisecond), spent, idle)
	for _, n := range reads {
		assert.Greater(t, n, 500)
	}
	assert.Less(t, spent-idle, took/100, "the owner's processor time")
}
