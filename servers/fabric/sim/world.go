package sim

import (
	"math/rand/v2"
	"time"
)

// Faults say what a World does beyond running at full speed. A field that is 0 has its default; a negative one means none.
type Faults struct {
	Drift    float64       // most by which a clock runs fast or slow; 1/128 by default, so the rates of two clocks are within 1/64
	Pace     time.Duration // most time from a step of a thread that worked to its next step; 2 µs by default
	Stall    time.Duration // most time for which a thread is not scheduled; 2 ms by default
	StallOne int           // a thread stalls once in so many steps; 2,000 by default
	Delay    time.Duration // most time that a message or the words of an operation are under way; 20 µs by default
	SlowOne  int           // once in so many operations that is up to a thousand times as long; 500 by default
	LoseOne  int           // an operation breaks its connection once in so many; never by default
}

// filled returns the faults with the defaults in place.
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
	now     time.Duration // true time, which no node sees
	events  events
	made    uint64 // events so far: those of the same time happen in the order in which they were made
	running bool   // an event is happening
	rand    *rand.Rand
	faults  Faults

	nodes     []*Node
	domains   []*Domain // all that there were
	listeners map[string]*Listener
	cut       map[[2]*Node]bool // from, to
}

// New returns a World without nodes. The seed decides all that the World decides.
func New(seed uint64, f Faults) *World {
	return &World{
		rand: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), faults: f.filled(),
		listeners: map[string]*Listener{}, cut: map[[2]*Node]bool{},
	}
}

// Close gives back the memory of all nodes. Nothing of the World is used afterwards.
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

// Now returns the true time since the World began. It is for checks: no program of a node may look at it.
func (w *World) Now() time.Duration { return w.now }

// Rand is the World's source of chance, for decisions of the caller that the seed shall decide too.
func (w *World) Rand() *rand.Rand { return w.rand }

// After has a function called once the given true time has passed. The function is an event; a negative duration counts as 0.
func (w *World) After(d time.Duration, do func()) { w.add(d, event{do: do}) }

func (w *World) add(d time.Duration, e event) {
	w.made++
	e.at, e.made = w.now+max(d, 0), w.made
	w.events.push(e)
}

// Step lets the next event happen. It returns false if there is none.
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

// Run lets happen what happens within the given true time.
func (w *World) Run(d time.Duration) { w.RunUntil(d, func() bool { return false }) }

// RunUntil does the same, but no longer than until a condition holds, which it looks at before every event. It returns whether the
// condition holds.
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

// Cut loses what one node sends to another from now on, in this direction only.
func (w *World) Cut(from, to *Node) { w.cut[[2]*Node{from, to}] = true }

// Heal ends Cut. What was lost stays lost.
func (w *World) Heal(from, to *Node) { delete(w.cut, [2]*Node{from, to}) }

// Reaches reports whether what a node sends now arrives at another one, as far as Cut goes. It is for what the caller simulates beside
// the fabric.
func (w *World) Reaches(from, to *Node) bool { return !w.cut[[2]*Node{from, to}] }

// Delay returns a random time for a message to be under way. It is for what the caller simulates beside the fabric.
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

// one is true once in n times, and never if n is 0.
func (w *World) one(n int) bool { return n > 0 && w.rand.IntN(n) == 0 }

// An event is something that will happen: the step of a thread that has this number, or else what is to be done. Most events are steps, for which no
// function is allocated.
type event struct {
	at     time.Duration
	made   uint64
	thread *Thread
	due    uint64
	do     func()
}

// events is a heap, the next event first. It is one of container/heap, but for that the events are not allocated one by one, and are moved once.
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
