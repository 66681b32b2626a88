package sim

import (
	"math/rand/v2"
	"time"
)

// Faults configure the delays and failures of a World. A zero field has its default; a negative one means none.
type Faults struct {
	Drift    float64       // largest relative error of a clock; 1/128 by default, so two clocks differ by at most 1/64
	Pace     time.Duration // longest time from a step of a thread that worked to its next step; 2 µs by default
	Stall    time.Duration // longest time for which a thread is not scheduled; 2 ms by default
	StallOne int           // a thread stalls once in this many steps; 2,000 by default
	Delay    time.Duration // longest time that a message or the words of an operation are under way; 20 µs by default
	SlowOne  int           // once in this many operations Delay is a thousand times as long; 500 by default
	LoseOne  int           // an operation breaks its connection once in this many; never by default
}

// filled returns the faults with defaults filled in.
func (f Faults) filled() Faults {
	fill(&f.Drift, 1.0/128)
	fill(&f.Pace, 2*time.Microsecond)
	fill(&f.Stall, 2*time.Millisecond)
	fill(&f.StallOne, 2000)
	fill(&f.Delay, 20*time.Microsecond)
	fill(&f.SlowOne, 500)
	fill(&f.LoseOne, 0)
	return f
}

func fill[T int | float64 | time.Duration](v *T, standard T) {
	if *v == 0 {
		*v = standard
	}
	*v = max(*v, 0)
}

// A World is a simulated cluster and its time.
type World struct {
	now     time.Duration // true time; no node sees it
	events  events
	made    uint64 // the number of events so far: events of the same time happen in the order in which they were made
	running bool   // an event is happening
	rand    *rand.Rand
	faults  Faults

	nodes     []*Node
	domains   []*Domain // all domains that ever existed
	listeners map[string]*Listener
	cut       map[[2]*Node]bool // by sender and receiver
}

// New returns a World without nodes. The seed decides all random choices.
func New(seed uint64, f Faults) *World {
	return &World{
		rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), faults: f.filled(),
		listeners: map[string]*Listener{}, cut: map[[2]*Node]bool{},
	}
}

// Close frees the memory of all nodes. The World is not used afterwards.
func (w *World) Close() error {
	w.events = nil
	var failed error
	for _, d := range w.domains {
		if err := d.regions.Close(); err != nil {
			failed = err
		}
	}
	return failed
}

// Now returns the true time since the World began. It is for checks: no program of a node may read it.
func (w *World) Now() time.Duration { return w.now }

// Rand returns the World's random source, for choices of the caller that the seed should decide too.
func (w *World) Rand() *rand.Rand { return w.rand }

// After calls a function, as an event, once d of true time has passed; a negative d counts as 0.
func (w *World) After(d time.Duration, do func()) { w.add(d, event{do: do}) }

func (w *World) add(d time.Duration, e event) {
	w.made++
	e.at, e.made = w.now+max(d, 0), w.made
	w.events.push(e)
}

// Step runs the next event. It returns false if there is none.
func (w *World) Step() bool {
	if w.running {
		panic("sim: an event runs the World: a step function calls nothing that blocks")
	}
	if len(w.events) == 0 {
		return false
	}
	e := w.events.pop()
	w.now = e.at
	w.running = true
	if e.thread != nil {
		e.thread.wakened(e.due)
	} else {
		e.do()
	}
	w.running = false
	return true
}

// Run runs all events of the next d of true time.
func (w *World) Run(d time.Duration) { w.RunUntil(d, func() bool { return false }) }

// RunUntil runs events for at most limit of true time, or until a condition holds, which it checks before every
// event. It returns whether the condition holds.
func (w *World) RunUntil(limit time.Duration, holds func() bool) bool {
	end := w.now + limit
	for !holds() {
		if len(w.events) == 0 || w.events[0].at > end {
			w.now = end
			return holds()
		}
		w.Step()
	}
	return true
}

// Cut loses what from sends to to from now on, in this direction only.
func (w *World) Cut(from, to *Node) { w.cut[[2]*Node{from, to}] = true }

// Heal ends Cut. What was lost stays lost.
func (w *World) Heal(from, to *Node) { delete(w.cut, [2]*Node{from, to}) }

// Reaches reports whether a message that from sends now arrives at to, as far as Cut goes. Callers use it for
// messages that they simulate outside the fabric.
func (w *World) Reaches(from, to *Node) bool { return !w.cut[[2]*Node{from, to}] }

// Delay returns a random travel time of a message. Callers use it for messages that they simulate outside the fabric.
func (w *World) Delay() time.Duration {
	d := w.upTo(w.faults.Delay)
	if w.one(w.faults.SlowOne) {
		d = w.upTo(1000 * w.faults.Delay)
	}
	return d
}

// upTo returns a random time from 0 to most.
func (w *World) upTo(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(w.rand.Int64N(int64(most) + 1))
}

// one is true once in n calls on average, and never if n is 0.
func (w *World) one(n int) bool { return n > 0 && w.rand.IntN(n) == 0 }

// An event is a step of a thread, with the step's number, or a function to call. Most events are steps, for which no
// function is allocated.
type event struct {
	at     time.Duration
	made   uint64
	thread *Thread
	due    uint64
	do     func()
}

// events is a heap with the next event first. Unlike with container/heap, events are not allocated one by one, and
// each level moves an event once.
type events []event

func (e *event) before(x *event) bool {
	return e.at < x.at || e.at == x.at && e.made < x.made
}

func (e *events) push(x event) {
	*e = append(*e, x)
	h := *e
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = x
}

func (e *events) pop() event {
	h := *e
	last := len(h) - 1
	first, x := h[0], h[last]
	h[last] = event{}
	h = h[:last]
	*e = h
	if last == 0 {
		return first
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h[child+1].before(&h[child]) {
			child++
		}
		if !h[child].before(&x) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
	return first
}
