package event

import (
	"bytes"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = time.Minute

// clock is a time that stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	c.at = c.at.Add(d)
	c.mu.Unlock()
}

// newHub returns a hub that uses a clock under the control of the test.
func newHub(handler func(Event)) (*Hub, *clock) {
	c := &clock{at: time.Unix(1000, 0)}
	h := NewHub(handler)
	h.now = c.now
	return h, c
}

func TestEveryKindHasALimit(t *testing.T) {
	for k := range Kinds {
		require.Positive(t, limits[k].events, "kind %d", k)
		require.Positive(t, limits[k].window, "kind %d", k)
	}
}

func TestDeliveredInOrder(t *testing.T) {
	var got []int64
	h, c := newHub(func(e Event) { got = append(got, e.Count) })
	for i := range int64(100) {
		h.Post(Event{Kind: Flush, Count: i})
		c.move(time.Second)
	}
	require.True(t, h.Wait(patience))
	require.Len(t, got, 100)
	for i, n := range got {
		require.EqualValues(t, i, n)
	}
	require.False(t, h.running)
	require.Nil(t, h.queue)
	require.Zero(t, h.Skipped())
}

// TestLimits: events beyond the limit of a kind are skipped and counted. Another kind, and the next period, have
// counts of their own.
func TestLimits(t *testing.T) {
	var got []Event
	h, c := newHub(func(e Event) { got = append(got, e) })
	for range 5 {
		h.Post(Event{Kind: SlowSync})
	}
	h.Post(Event{Kind: Flush})
	c.move(10 * time.Second)
	h.Post(Event{Kind: SlowSync})
	h.Post(Event{Kind: SlowSync})
	require.True(t, h.Wait(patience))
	require.Len(t, got, 3)
	require.Equal(t, []Kind{SlowSync, Flush, SlowSync}, []Kind{got[0].Kind, got[1].Kind, got[2].Kind})
	require.Equal(t, []uint64{0, 0, 4}, []uint64{got[0].Skipped, got[1].Skipped, got[2].Skipped})
	require.Equal(t, time.Unix(1010, 0), got[2].Time)
	require.EqualValues(t, 5, h.Skipped())
}

// TestPostNeverWaits: a function that hangs does not block those who post, however many events they post. Events
// for which the queue has no room are counted and reported later.
func TestPostNeverWaits(t *testing.T) {
	hangs, free := make(chan struct{}), make(chan struct{})
	got := 0
	last := Event{}
	h, c := newHub(func(e Event) {
		if got++; got == 1 {
			close(hangs)
			<-free
		}
		last = e
	})
	h.Post(Event{Kind: Open})
	<-hangs
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * queueLength {
			h.Post(Event{Kind: Poisoned})
			c.move(time.Second)
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Post waits for the function")
	}
	require.False(t, h.Wait(time.Millisecond))
	close(free)
	require.True(t, h.Wait(patience))
	require.Equal(t, 1+queueLength, got)
	require.EqualValues(t, queueLength, h.Skipped())
	h.Post(Event{Kind: Poisoned})
	require.True(t, h.Wait(patience))
	require.EqualValues(t, queueLength, last.Skipped)
}

// TestCalledUnderNoLock: the function may call Post and Wait.
func TestCalledUnderNoLock(t *testing.T) {
	var h *Hub
	got := 0
	h, _ = newHub(func(e Event) {
		if got++; e.Kind == Open {
			h.Post(Event{Kind: Close})
		}
		require.False(t, h.Wait(0))
	})
	h.Post(Event{Kind: Open})
	require.True(t, h.Wait(patience))
	require.Equal(t, 2, got)
}

// TestPanics: a function that panics or ends its goroutine still receives the next event. The log is told of a
// panic once a minute.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	got := 0
	h, c := newHub(func(e Event) {
		got++
		switch e.Kind {
		case Flush:
			panic("mine")
		case Clean:
			runtime.Goexit()
		}
	})
	post := func(k Kind) {
		h.Post(Event{Kind: k})
		require.True(t, h.Wait(patience))
	}
	for _, k := range []Kind{Flush, Flush, Clean, Open} {
		post(k)
	}
	require.Equal(t, 4, got)
	require.Equal(t, 1, strings.Count(log.String(), "panicked"), log.String())
	require.Contains(t, log.String(), "mine")
	c.move(panicsEvery)
	post(Flush)
	require.Equal(t, 2, strings.Count(log.String(), "panicked"))
}

func TestNilHub(t *testing.T) {
	var h *Hub
	h.Post(Event{})
	require.True(t, h.Wait(0))
	require.Zero(t, h.Skipped())
}

func TestPostedAtOnce(t *testing.T) {
	got := uint64(0)
	h := NewHub(func(e Event) { got += 1 + e.Skipped })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				h.Post(Event{Kind: Flush})
			}
		})
	}
	all.Wait()
	require.True(t, h.Wait(patience))
	left := uint64(0)
	for _, c := range h.counts {
		left += c.skipped
	}
	require.EqualValues(t, 1600, got+left)
}
