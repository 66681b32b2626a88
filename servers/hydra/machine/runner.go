package machine

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/membership"
	"flashdbm/servers/shard"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

const (
	// spinTime is how long a shard that finds nothing to do polls before it sleeps. A client that sends within this
	// time is answered in a fraction of a microsecond; waking takes some ten. Polling occupies a processor.
	spinTime = 20 * time.Microsecond
	// longSpin replaces spinTime after a sleep that was shorter than longSpin, on a node without a cluster that leaves
	// a processor to others. Such a sleep costs both sides more than polling would have. Many callers of one client
	// leave such gaps: while they make GETs by themselves, nobody sends. With 50 callers, half of whose requests were
	// GETs, one shard and two processors: 640,000 operations a second by 20 µs, 870,000 by 100 or 400 µs. With two
	// shards on two processors 100 µs costs the callers up to a third of their rate.
	longSpin = 100 * time.Microsecond
	// lookEvery is the interval at which a busy shard checks its connections, and publishes its statistics.
	lookEvery = 50 * time.Millisecond
	// idleLook is the longest sleep of a thread. waitingLook is the longest sleep while the shard does not take the
	// requests of its callers.
	idleLook    = 200 * time.Millisecond
	waitingLook = time.Millisecond
	// groupOps is the most operations that all connections of a shard together have under way.
	groupOps = 1 << 16
)

// A runner is a shard and its thread.
type runner struct {
	n       *Node
	number  uint32
	began   time.Time
	shard   *shard.Shard
	store   *store.Store // nil in memory mode
	groups  []*wire.Group
	groupOf []int // by listener
	others  []*wire.Sleeper
	attach  chan attachment
	ended   chan struct{}    // closed once attach has no receiver
	copy    *membership.Copy // nil: the node is not in a cluster
	read    time.Time        // the clock, as read by the last sweep
	failure atomic.Pointer[error]
	stats   atomic.Pointer[shard.Stats] // at the last check
	stopped atomic.Bool
	started bool
	counted bool // the thread has had clients for which it polls, so GOMAXPROCS was raised for it
	done    sync.WaitGroup

	// The holder of own serves the shard: the thread while it is awake, or a caller of this process. called says that
	// a caller has put requests into a line. See local.go for both.
	own    sync.Mutex
	called atomic.Bool
	lines  []wire.Line // for the holder of own
	wakes  time.Time   // for the holder of own: when the sleeping thread wakes up by itself
}

// makeGroups makes one group for each domain.
func (r *runner) makeGroups() error {
	var domains []fabric.Domain
	for _, l := range r.n.o.Listen {
		at := -1
		for i, d := range domains {
			if d == l.Domain {
				at = i
			}
		}
		if at < 0 {
			g, err := wire.NewGroup(l.Domain, groupOps)
			if err != nil {
				r.close()
				return err
			}
			at = len(domains)
			domains, r.groups = append(domains, l.Domain), append(r.groups, g)
		}
		r.groupOf = append(r.groupOf, at)
	}
	return nil
}

func (r *runner) clock() (mono int64, wall uint64) {
	r.read = time.Now()
	return int64(r.read.Sub(r.began)), uint64(r.read.UnixMilli())
}

func (r *runner) start() {
	r.started = true
	r.own.Lock() // for the thread
	if r.store != nil {
		r.store.Start()
	}
	for _, g := range r.groups[1:] {
		r.others = append(r.others, wire.NewSleeper(g, r.groups[0].Wake))
	}
	r.done.Go(r.run)
}

// run is the shard's thread.
func (r *runner) run() {
	runtime.LockOSThread()
	if r.n.o.Pin {
		pin(r.n.processor(r.number))
	}
	var idle, looked time.Time
	spin, spares := spinTime, r.copy == nil && len(r.n.runners()) < runtime.NumCPU()
	for !r.stopped.Load() {
		r.take()
		worked := r.sweep()
		now := r.read // reading the clock costs a good part of a sweep that finds nothing
		if now.Sub(looked) >= lookEvery {
			looked = now
			stats := r.shard.Stats()
			r.stats.Store(&stats)
			for _, g := range r.groups {
				g.Check(now)
			}
			r.lines = slices.DeleteFunc(r.lines, func(l wire.Line) bool { return l.Err() != nil })
			if err := r.shard.Err(); err != nil && r.failure.Load() == nil {
				r.failure.Store(&err)
			}
		}
		switch {
		case r.alone() && (!worked || !r.waiting()) && r.arm():
			r.sleep(r.idleFor()) // as a borrower does
		case worked || idle.IsZero():
			idle = now
		case (now.Sub(idle) >= spin || r.shard.AwaitsFile()) && r.arm():
			// While requests wait for the file, polling only delays the goroutine that reads or syncs it: the thread has
			// made it ready, and Go takes it away from a running thread behind a pause that lasts 50 µs. A GET of one
			// client that reads the file takes 0.20 ms instead of 0.27, and 92 µs of processor time instead of 218. A
			// durable PUT of one client beside ten busy threads takes 0.46 to 0.62 ms instead of 0.92 to 1.83.
			r.sleep(r.idleFor())
			idle = time.Now()
			if spin = spinTime; idle.Sub(now) < longSpin && spares {
				spin = longSpin
			}
		}
	}
}

// sweep receives, serves and answers. It reports whether there was anything to do.
func (r *runner) sweep() (worked bool) {
	r.called.Store(false) // before the last check of the lines
	for _, g := range r.groups {
		worked = g.Step() || worked
	}
	worked = r.shard.Sweep() || worked
	if r.copy != nil {
		worked = r.copy.Confer(r.read) || worked
		r.moves()
	}
	for _, g := range r.groups {
		g.Flush()
	}
	return worked
}

// alone reports whether all clients are callers of this process, which find the shard asleep sooner if the thread
// does not poll.
func (r *runner) alone() bool { return r.copy == nil && r.shard.Connections() == len(r.lines) }

// processors guards the value of GOMAXPROCS, which all nodes of the process change.
var processors sync.Mutex

func addProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// take adds new connections to their group and the shard, and runs functions for the thread.
func (r *runner) take() {
	for {
		select {
		case a := <-r.attach:
			if a.line != nil {
				r.lines = append(r.lines, a.line)
				r.shard.Attach(a.line, a.greeting)
				continue
			}
			if a.do != nil {
				a.do()
				continue
			}
			if !r.counted {
				r.counted = true
				addProcessors(1)
			}
			a.group.Add(a.conn)
			r.shard.Attach(a.conn, a.greeting)
		default:
			return
		}
	}
}

// arm reports whether all peers will wake this thread from now on, and nothing has come so far.
func (r *runner) arm() bool {
	ready := true
	for _, g := range r.groups {
		ready = g.Arm() && ready
	}
	return ready && len(r.attach) == 0
}

// idleFor returns how long the thread may sleep if nothing wakes it.
func (r *runner) idleFor() time.Duration {
	if r.waiting() { // for the file, or for a predecessor's tenure: otherwise the last sweep would have taken the requests
		return min(r.shard.IdleFor(), waitingLook)
	}
	return min(r.shard.IdleFor(), idleLook)
}

// sleep releases the shard until a peer notifies the thread, the thread is woken, or d has passed.
func (r *runner) sleep(d time.Duration) {
	r.wakes = r.read.Add(d)
	ctx, cancel := context.WithTimeout(context.Background(), d)
	for _, s := range r.others {
		s.Start(ctx)
	}
	r.own.Unlock()
	if !r.called.Load() { // after Unlock
		r.groups[0].Wait(ctx, 0)
	}
	r.own.Lock()
	cancel()
	for _, s := range r.others {
		s.Stop()
	}
}

// end stops the thread and closes everything of the shard.
func (r *runner) end() error {
	if r.started {
		r.stopped.Store(true)
		r.groups[0].Wake()
		r.done.Wait()
		close(r.ended)
		r.take() // attachments under way are closed with the shard
		if r.counted {
			addProcessors(-1)
		}
	}
	for _, s := range r.others {
		s.End()
	}
	return r.close()
}

func (r *runner) close() error {
	var err error
	if r.shard != nil {
		err = r.shard.Close()
	}
	for _, g := range r.groups {
		err = errors.Join(err, g.Close())
	}
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	return err
}
