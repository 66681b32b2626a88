package fabrictest

import (
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

var measure = flag.Bool("fabric.measure", false, "measure the provider between two processes")

// Measure logs how long a provider's operations take between two processes, as medians of single operations. It is no
// test: a machine with other work, or with fewer than two idle processors, shows other figures.
func Measure(t *testing.T, p Provider) {
	if !*measure {
		t.Skip("-fabric.measure")
	}
	s := &suite{p: p, apart: true}
	t.Run("Read", func(t *testing.T) { measureReads(t, s) })
	t.Run("Owner", func(t *testing.T) { measureOwner(t, s) })
	t.Run("Ring", func(t *testing.T) { measureRoundTrip(t, s, -1, 0) })
	t.Run("Wake", func(t *testing.T) { measureRoundTrip(t, s, 0, 300*time.Microsecond) })
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// finish polls until an operation has completed.
func (c *side) finish(t *testing.T) {
	var wc [1]fabric.WC
	for c.q.Poll(wc[:]) == 0 {
	}
	require.NoError(t, wc[0].Err)
}

// polled returns the next completion, if there is one.
func (c *side) polled() []fabric.WC {
	wc := make([]fabric.WC, 1)
	return wc[:c.q.Poll(wc)]
}

func measureReads(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 1<<20, both)
	c := s.connect(t, o)
	for _, n := range []int{64, 1024, 4096} {
		read := []fabric.WR{c.read(key, 0, n)}
		read[0].Flags = fabric.Signal
		var batches []time.Duration // of ten Reads each, because reading the clock costs a tenth of a Read
		for i, end := 0, time.Now().Add(3*time.Second); i < 20_000 && time.Now().Before(end); i++ {
			read[0].ROff = uint64(i%200) * 4096
			began := time.Now()
			for range 10 {
				if _, err := c.e.Post(read); err != nil {
					t.Fatal(err)
				}
				c.finish(t)
			}
			batches = append(batches, time.Since(began))
		}
		t.Logf("Read of %d bytes: %v", n, median(batches)/10)
	}
}

// measureOwner logs the owner's processor time while two peers read 1 KiB at full speed.
func measureOwner(t *testing.T, s *suite) {
	o := s.owner(t)
	_, key := alloc(t, o, 1<<20, both)
	clients := []*side{s.connect(t, o), s.connect(t, o)}
	var reads [2]int
	before := o.call(t, request{Do: "cpu"}).CPU
	began := time.Now()
	var fire sync.WaitGroup
	for i, c := range clients {
		read := c.read(key, 0, 1024)
		read.Flags = fabric.Signal
		fire.Go(func() {
			for time.Since(began) < 10*time.Second && outcome(c, read) == nil {
				reads[i]++
			}
		})
	}
	fire.Wait()
	took := time.Since(began)
	spent := o.call(t, request{Do: "cpu"}).CPU - before
	t.Logf("%d Reads of 1024 bytes in %.1f s cost the owner %v of processor time: %.2f %%",
		reads[0]+reads[1], took.Seconds(), spent.Round(time.Microsecond), 100*spent.Seconds()/took.Seconds())
}

// measureRoundTrip logs the time of a Write to the owner and a Write back. This end polls its memory; with a provider
// that is not one-sided it sleeps instead if the owner does. The owner polls if spin is negative; else it sleeps in
// Wait, and pause gives it time to fall asleep.
func measureRoundTrip(t *testing.T, s *suite, spin int, pause time.Duration) {
	o := s.owner(t)
	region, key := alloc(t, o, 4096, both)
	c := s.connect(t, o)
	back, err := c.d.Alloc(4096, both)
	require.NoError(t, err)
	o.call(t, request{Do: "pong", Conn: c.peer, Region: region, Key: back.Key(), N: spin, Limit: 10 * time.Minute})
	rounds := 20_000
	if spin >= 0 {
		rounds = 3000
	}
	var times []time.Duration
	w := []fabric.WR{c.write(key, 0, 8)}
	w[0].Flags = fabric.Signal
	if spin >= 0 {
		w[0].Flags |= fabric.Notify
	}
	for i, end := 0, time.Now().Add(10*time.Second); i < rounds; i++ {
		n := uint64(i + 1)
		if i == rounds-1 || time.Now().After(end) {
			n, rounds = lastNumber, i
		}
		time.Sleep(pause)
		words.Store(c.local.Bytes(), 0, n)
		began := time.Now()
		_, err := c.e.Post(w)
		require.NoError(t, err)
		for words.Load(back.Bytes(), 0) != n {
			if !c.d.Caps().OneSided && spin >= 0 { // polling would take the processor from the agents
				require.True(t, c.waits(patience, 0))
				c.extra = append(c.extra, c.polled()...)
			}
		}
		times = append(times, time.Since(began))
		if len(c.extra) == 0 {
			c.finish(t)
		}
		c.extra = nil
	}
	o.call(t, request{Do: "still"})
	m := median(times)
	if spin < 0 {
		t.Logf("Write and polled Write back: %v", m)
	} else {
		t.Logf("Write with Notify to a sleeping owner, and Write back: median %v, 99 %% %v", m, times[len(times)*99/100])
	}
}
