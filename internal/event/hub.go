package event

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// queueLength is the most events that wait for the function. For a function that takes a millisecond, a hundred
// would be enough. A longer queue makes events reach the operator later; a shorter one drops more of the burst of
// events at the end of a stall.
const queueLength = 256

// limit is how many events of a kind are delivered in a window of time. Further ones are counted, and the next
// delivered event of the kind carries the count.
type limit struct {
	events uint64
	window time.Duration
}

// limits of each kind. Kinds whose cause repeats, such as a slow device, are delivered a few times a minute at
// most, so that a log stays readable. Flush, Checkpoint and Clean are frequent if RedoLimit is small.
var limits = [Kinds]limit{
	Open: {10, time.Second}, Close: {10, time.Second}, Recovery: {10, time.Second}, Poisoned: {10, time.Second},
	Flush: {10, time.Second}, Checkpoint: {10, time.Second}, Clean: {10, time.Second},
	SlowSync: {1, 10 * time.Second}, ConflictStorm: {1, 10 * time.Second},
	OldSnapshot: {1, time.Minute}, SnapshotEnded: {10, 10 * time.Second},
	Background: {10, 10 * time.Second}, Corruption: {10, 10 * time.Second},
}

// Hub delivers events to a function, in the order of Post, one at a time, on a goroutine that exists only while
// events wait.
//
//   - Post never waits: it takes a lock that is held only while an event is copied, and may be called under any
//     other lock.
//   - The function is called under no lock and may take any time. Events that find the queue full are dropped and
//     counted, like those beyond their limit.
//   - A panic of the function ends that call. The default logger of package slog gets a message, at most once a
//     minute, and the next event is delivered.
//   - A function that ends its goroutine (runtime.Goexit) gets the next event on another one.
//
// A nil Hub drops everything.
type Hub struct {
	handler func(Event)
	now     func() time.Time // the clock of the limits; tests have their own
	skipped atomic.Uint64    // events of all kinds dropped so far

	mu       sync.Mutex // a leaf lock: guards the fields below
	queue    []Event    // oldest first
	running  bool       // a goroutine runs deliver, or is about to
	idle     chan struct{}
	counts   [Kinds]count
	panicked time.Time // when a panic was last reported
}

// count is the state of the limit of one kind.
type count struct {
	since   time.Time // beginning of the window
	passed  uint64    // events passed in the window
	skipped uint64    // events dropped since the last one that passed
}

// NewHub returns a hub that delivers to the function.
func NewHub(handler func(Event)) *Hub { return &Hub{handler: handler, now: time.Now} }

// Post queues an event, or drops it. It sets Time if that is zero.
func (h *Hub) Post(e Event) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if e.Time.IsZero() {
		e.Time = now
	}
	c, l := &h.counts[e.Kind], limits[e.Kind]
	if now.Sub(c.since) >= l.window {
		c.since, c.passed = now, 0
	}
	if c.passed >= l.events || len(h.queue) >= queueLength {
		c.skipped++
		h.skipped.Add(1)
		return
	}
	c.passed++
	e.Skipped, c.skipped = c.skipped, 0
	h.queue = append(h.queue, e)
	if !h.running {
		h.running = true
		h.idle = make(chan struct{})
		go h.deliver()
	}
}

// Skipped returns the number of events dropped so far.
func (h *Hub) Skipped() uint64 {
	if h == nil {
		return 0
	}
	return h.skipped.Load()
}

// Wait returns true when all events posted before have been delivered, or false after the given time.
func (h *Hub) Wait(most time.Duration) bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	idle, running := h.idle, h.running
	h.mu.Unlock()
	if !running {
		return true
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-idle:
		return true
	case <-t.C:
		return false
	}
}

// deliver calls the function for the events in the queue until the queue is empty.
func (h *Hub) deliver() {
	ended := false
	defer func() {
		if !ended { // the function has ended this goroutine
			go h.deliver()
		}
	}()
	for {
		e, ok := h.next()
		if !ok {
			ended = true
			return
		}
		h.call(e)
	}
}

// next takes the oldest event from the queue. If there is none, ok is false, and next notes that no goroutine
// delivers any more.
func (h *Hub) next() (e Event, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		h.running, h.queue = false, nil
		close(h.idle)
		return e, false
	}
	e = h.queue[0]
	h.queue[0] = Event{}
	h.queue = h.queue[1:]
	return e, true
}

// panicsEvery is the least time between two reports of a panic of the function.
const panicsEvery = time.Minute

func (h *Hub) call(e Event) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		h.mu.Lock()
		report := h.panicked.IsZero() || h.now().Sub(h.panicked) >= panicsEvery
		if report {
			h.panicked = h.now()
		}
		h.mu.Unlock()
		if report {
			slog.Error("flashdbm: the function of Options.Events panicked", "panic", fmt.Sprint(r), "event", e.Kind, "stack", string(debug.Stack()))
		}
	}()
	h.handler(e)
}
