package sim

import "time"

// A Node is a simulated machine with one process, which may die and be restarted.
type Node struct {
	w    *World
	name string

	// The monotonic clock showed base at true time since, and has run at rate since then. The clock of a suspended
	// node stands still at base.
	base  time.Time
	since time.Duration
	rate  float64
	jump  time.Duration // wall clock minus monotonic clock

	// seen is what the monotonic clock showed at true time seenAt, because each step reads the clock several times;
	// -1: none.
	seen   time.Time
	seenAt time.Duration

	state   state
	life    uint64 // counts incarnations; functions and threads of an earlier one are dead
	threads []*Thread
	domain  *Domain
	resumed []func() // functions to call at Resume
}

type state uint8

const (
	running state = iota
	stopped
	suspended
	dead
)

// NewNode adds a running node. Its clock starts at a random time and drifts as the World's Faults say.
func (w *World) NewNode(name string) *Node {
	n := &Node{w: w, name: name, since: w.now, seenAt: -1, rate: 1 + w.faults.Drift*(2*w.rand.Float64()-1)}
	n.base = time.Unix(1e9, 0).UTC().Add(w.upTo(1000 * time.Hour))
	w.nodes = append(w.nodes, n)
	return n
}

// Name returns the node's name.
func (n *Node) Name() string { return n.name }

// Now returns the node's monotonic clock, as a time without monotonic reading. Only differences are meaningful, and
// only on this node.
func (n *Node) Now() time.Time {
	if n.state == suspended {
		return n.base
	}
	if n.seenAt != n.w.now {
		n.seen, n.seenAt = n.base.Add(time.Duration(float64(n.w.now-n.since)*n.rate)), n.w.now
	}
	return n.seen
}

// Wall returns the node's date.
func (n *Node) Wall() time.Time { return n.Now().Add(n.jump) }

// JumpWall changes the date, as an administrator might.
func (n *Node) JumpWall(d time.Duration) { n.jump += d }

// until returns the true time that passes until the node's clock shows t; 0 if it already does.
func (n *Node) until(t time.Time) time.Duration {
	left := t.Sub(n.Now())
	if left <= 0 {
		return 0
	}
	return time.Duration(float64(left)/n.rate) + 1
}

// Alive reports whether the node has an incarnation, stopped or not. Running reports whether its threads run.
func (n *Node) Alive() bool   { return n.state != dead }
func (n *Node) Running() bool { return n.state == running }

// Stop stops the node's threads until Resume.
func (n *Node) Stop() {
	if n.state == running {
		n.state = stopped
	}
}

// Suspend is Stop with a monotonic clock that stands still. At Resume the wall clock catches up.
func (n *Node) Suspend() {
	if n.state == running {
		n.rebase()
		n.state = suspended
	}
}

// Resume ends Stop or Suspend.
func (n *Node) Resume() {
	switch n.state {
	case suspended:
		slept := time.Duration(float64(n.w.now-n.since) * n.rate)
		n.since, n.seenAt = n.w.now, -1
		n.jump += slept
	case stopped:
	default:
		return
	}
	n.state = running
	held := n.resumed
	n.resumed = nil
	for _, do := range held {
		n.w.After(n.w.Delay(), do)
	}
	for _, t := range n.threads {
		t.schedule(n.w.upTo(n.w.faults.Pace))
	}
}

// whenRunning calls a function now, or at Resume if the node is stopped. It drops the function if the incarnation
// ends.
func (n *Node) whenRunning(do func()) {
	switch n.state {
	case running:
		do()
	case stopped, suspended:
		n.resumed = append(n.resumed, do)
	}
}

func (n *Node) rebase() { n.base, n.since, n.seenAt = n.Now(), n.w.now, -1 }

// Kill ends the incarnation: its threads at once, the access of peers to its memory a little later.
func (n *Node) Kill() {
	if n.state == dead {
		return
	}
	if n.state == suspended {
		n.Resume()
	}
	n.state = dead
	n.life++
	n.threads, n.resumed = nil, nil
	if n.domain != nil {
		n.domain.die()
		n.domain = nil
	}
}

// Restart begins a new incarnation of a dead node, without threads.
func (n *Node) Restart() {
	if n.state == dead {
		n.state = running
	}
}

// A Thread calls a step function.
type Thread struct {
	n    *Node
	name string
	life uint64
	step func(now time.Time) (worked bool, next time.Time)
	due  uint64 // number of the step that is scheduled; events with another number do nothing
	on   bool   // a step is scheduled
	at   time.Duration
	held time.Duration // the end of a stall; a wake-up does not shorten it
}

// Go starts a thread of the node's present incarnation. Completions and notifications of the queues wake it. Each
// queue belongs to this node's Domain, and to one thread.
func (n *Node) Go(name string, step func(now time.Time) (worked bool, next time.Time), queues ...*Queue) *Thread {
	t := &Thread{n: n, name: name, life: n.life, step: step}
	for _, q := range queues {
		q.wakes = t
	}
	n.threads = append(n.threads, t)
	t.schedule(n.w.upTo(n.w.faults.Pace))
	return t
}

// Wake schedules a step soon, because something inside the node has happened that the thread waits for.
func (t *Thread) Wake() { t.schedule(t.n.w.upTo(t.n.w.faults.Pace)) }

// schedule makes the next step happen within d.
func (t *Thread) schedule(d time.Duration) {
	w := t.n.w
	at := max(w.now+d, t.held)
	if t.on && t.at <= at {
		return
	}
	t.due++
	t.on, t.at = true, at
	w.add(at-w.now, event{thread: t, due: t.due})
}

// wakened runs the scheduled step if it has that number, that is, unless another one was scheduled since.
func (t *Thread) wakened(due uint64) {
	if t.due == due {
		t.on = false
		t.run()
	}
}

func (t *Thread) run() {
	n, w := t.n, t.n.w
	if t.life != n.life || n.state != running {
		return // Resume schedules a step
	}
	worked, next := t.step(n.Now())
	if w.one(w.faults.StallOne) {
		t.held = w.now + w.upTo(w.faults.Stall)
	}
	switch {
	case worked:
		t.schedule(w.upTo(w.faults.Pace))
	case !next.IsZero():
		t.schedule(max(n.until(next), w.upTo(w.faults.Pace)))
	}
}
