package machine

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	// leave such gaps: while they make one-sided GETs, no messages are sent. With 50 callers, half of whose requests
	// were GETs, one shard and two processors: 640,000 operations a second with 20 µs, 870,000 with 100 or 400 µs.
	// With two shards on two processors 100 µs costs the callers up to a third of their rate.
	longSpin = 100 * time.Microsecond
	// shortSpin replaces spinTime on a node without a cluster that has at least as many shards as processors: a shard
	// that polls there keeps a client, or another shard, from using the processor. Measured with two shards on two
	// processors and 1, 4, 16 and 50 callers, half of whose requests are GETs by message: 63,000, 132,000, 370,000 and
	// 622,000 operations a second with 5 µs; 47,000, 103,000, 365,000 and 551,000 with 20 µs. Each operation takes 9 to
	// 32 % less processor time with 5 µs. 10 µs are as good, 2 µs worse. Clients on other machines whose requests come 5
	// to 20 µs apart are answered later.
	shortSpin = 5 * time.Microsecond
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
	groups  *wire.Groups
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
	r.done.Go(r.run)
}

// run is the shard's thread.
func (r *runner) run() {
	runtime.LockOSThread()
	if r.n.o.Pin {
		pin(r.n.processor(r.number))
	}
	var idle, looked time.Time
	least, most := spinTime, spinTime
	switch crowded := len(r.n.runners()) >= runtime.NumCPU(); {
	case r.copy != nil:
	case crowded:
		least, most = shortSpin, shortSpin
	default:
		most = longSpin
	}
	spin := least
	for !r.stopped.Load() {
		r.take()
		worked := r.sweep()
		now := r.read // reading the clock costs a good part of a sweep that finds nothing
		if now.Sub(looked) >= lookEvery {
			looked = now
			stats := r.shard.Stats()
			r.stats.Store(&stats)
			r.groups.Check(now)
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
			// made it ready, and Go takes it away from a running thread after a pause that lasts 50 µs. A GET of one
			// client that reads the file takes 0.20 ms instead of 0.27, and 92 µs of processor time instead of 218. A
			// durable PUT of one client, while ten other threads are busy, takes 0.46 to 0.62 ms instead of 0.92 to
			// 1.83.
			r.sleep(r.idleFor())
			idle = time.Now()
			if spin = least; idle.Sub(now) < most {
				spin = most
			}
		}
	}
}

// sweep receives, serves and answers. It reports whether there was anything to do.
func (r *runner) sweep() (worked bool) {
	r.called.Store(false) // before the last check of the lines
	worked = r.groups.Step()
	worked = r.shard.Sweep() || worked
	if r.copy != nil {
		worked = r.copy.Confer(r.read) || worked
		r.moves()
	}
	r.groups.Flush()
	return worked
}

// alone reports whether all clients are callers of this process, which find the shard asleep sooner if the thread
// does not poll.
func (r *runner) alone() bool { return r.copy == nil && r.shard.Connections() == len(r.lines) }

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
				wire.AddProcessors(1)
			}
			a.group.Add(a.conn)
			r.shard.Attach(a.conn, a.greeting)
		default:
			return
		}
	}
}

// arm reports whether all peers will wake this thread from now on, and nothing has come so far.
func (r *runner) arm() bool { return r.groups.Arm() && len(r.attach) == 0 }

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
	r.own.Unlock()
	if !r.called.Load() { // after Unlock
		r.groups.Sleep(d)
	}
	r.own.Lock()
}

// end stops the thread and closes everything of the shard.
func (r *runner) end() error {
	if r.started {
		r.stopped.Store(true)
		r.groups.Wake()
		r.done.Wait()
		close(r.ended)
		r.take() // attachments under way are closed with the shard
		if r.counted {
			wire.AddProcessors(-1)
		}
	}
	return r.close()
}

func (r *runner) close() error {
	var err error
	if r.shard != nil {
		err = r.shard.Close()
	}
	err = errors.Join(err, r.groups.Close())
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	return err
}
