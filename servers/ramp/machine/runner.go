package machine

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/servers/membership"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

const (
	// spinTime is how long a partition that finds nothing to do polls before it sleeps. A client that sends within
	// this time is answered in a fraction of a microsecond; waking takes some ten. Polling occupies a processor.
	spinTime = 20 * time.Microsecond
	// checkEvery is the interval at which a busy partition checks its connections.
	checkEvery = 50 * time.Millisecond
	// idleLook is the longest sleep of a thread.
	idleLook = 200 * time.Millisecond
	// groupOps is the most operations that all connections of a partition together have under way.
	groupOps = 1 << 16
)

// A runner is a partition and its thread.
type runner struct {
	n       *Node
	number  uint32
	p       served
	alone   *partition.Partition // p, if the node is alone; else nil
	copy    *membership.Copy     // nil if the node is alone
	file    store.VersionFile    // nil in memory mode without a cluster, as store
	store   *store.Store
	groups  *wire.Groups
	attach  chan attachment
	stopped atomic.Bool
	started bool
	counted bool // the thread has had clients, so GOMAXPROCS was raised for it
	done    sync.WaitGroup

	// The holder of own serves the partition, and uses p, groups, read and called. While own is held, no lock but
	// mailMu is taken.
	own    sync.Mutex
	read   time.Time // the clock, as last read
	called bool      // there was a call since the thread last went to sleep

	mailMu sync.Mutex // guards mails; no other lock is taken while it is held
	mails  []partition.Note
	posted atomic.Bool // mails is not empty
}

// A served is the partition, or this node's member of its replicas.
type served interface {
	Step() bool
	Hear(n partition.Note)
	Attach(c partition.Conn, g partition.Greeting)
	Connections() int
	IdleFor() time.Duration
	Stats() partition.Stats
	Term() uint64
	Err() error
	Close() error
}

// An attachment is something for the partition's thread: a new connection or a function.
type attachment struct {
	group    *wire.Group
	conn     wire.Conn
	greeting partition.Greeting
	do       func() // a function for the thread to call
}

func (r *runner) clock(least uint64) (mono int64, wall uint64) {
	r.read = time.Now()
	return r.n.date(r.read, least)
}

func (r *runner) start() {
	r.started = true
	if r.store != nil {
		r.store.Start()
	}
	r.done.Go(r.run)
}

// mail leaves a note for the partition.
func (r *runner) mail(n partition.Note) {
	r.mailMu.Lock()
	r.mails = append(r.mails, n)
	first := !r.posted.Swap(true)
	r.mailMu.Unlock()
	if first { // else the thread was woken for an earlier note, and has not checked yet
		r.groups.Wake()
	}
}

// hear passes the notes to the partition.
func (r *runner) hear() bool {
	if !r.posted.Load() {
		return false
	}
	r.mailMu.Lock()
	list := r.mails
	r.mails = nil
	r.posted.Store(false)
	r.mailMu.Unlock()
	if r.alone != nil {
		r.alone.Look()
	}
	for _, n := range list {
		r.p.Hear(n)
	}
	return true
}

// run is the partition's thread.
func (r *runner) run() {
	runtime.LockOSThread()
	var idle, checked time.Time
	r.own.Lock()
	defer r.own.Unlock()
	for !r.stopped.Load() {
		r.take()
		worked := r.sweep()
		now := r.read
		if now.Sub(checked) >= checkEvery {
			checked = now
			r.groups.Check(now)
		}
		switch {
		case worked || idle.IsZero():
			idle = now
			r.yield()
		case (r.p.Connections() == 0 && r.copy == nil || now.Sub(idle) >= spinTime) && r.arm():
			r.sleep(min(r.idleFor(), idleLook))
			idle = time.Time{}
		default:
			r.yield()
		}
	}
}

// yield lets goroutines that wait for the partition go first. Without it they would wait until the thread sleeps.
func (r *runner) yield() {
	r.own.Unlock()
	r.own.Lock()
}

// sweep receives, serves and answers. It reports whether there was anything to do.
func (r *runner) sweep() (worked bool) {
	worked = r.groups.Step()
	worked = r.hear() || worked
	worked = r.p.Step() || worked
	if r.copy != nil {
		worked = r.copy.Confer(r.read) || worked
	}
	r.groups.Flush()
	return worked
}

// take adds new connections to their group and the partition, and runs functions for the thread.
func (r *runner) take() {
	for {
		select {
		case a := <-r.attach:
			if a.do != nil {
				a.do()
				continue
			}
			if !r.counted {
				r.counted = true
				wire.AddProcessors(1)
			}
			a.group.Add(a.conn)
			r.p.Attach(a.conn, a.greeting)
		default:
			return
		}
	}
}

// arm reports whether all peers will wake this thread from now on, and nothing has come so far.
func (r *runner) arm() bool {
	return r.groups.Arm() && len(r.attach) == 0 && !r.posted.Load()
}

// idleFor returns how long the thread may sleep.
func (r *runner) idleFor() time.Duration {
	if r.called { // the next caller probably comes soon
		r.called = false
		return r.alone.IdleBeside()
	}
	return r.p.IdleFor()
}

// sleep releases the partition until a peer notifies the thread, the thread is woken, or d has passed.
func (r *runner) sleep(d time.Duration) {
	r.own.Unlock()
	r.groups.Sleep(d)
	r.own.Lock()
}

// stored is called when the store has an answer or a newly durable entry for the partition. If the thread sleeps,
// the store's thread serves the partition itself, so there is no wake-up between the end of a sync and the answers
// that waited for it.
func (r *runner) stored() {
	if !r.started || r.copy != nil || !r.own.TryLock() { // only the thread sends to other nodes
		r.groups.Wake()
		return
	}
	defer r.own.Unlock()
	if r.stopped.Load() {
		return
	}
	r.p.Step()
	if r.p.Connections() > 0 {
		r.groups.Wake() // the thread handles the completions of what was sent
	}
}

// call runs a function on the partition, for a goroutine of this process.
func (r *runner) call(do func(p *partition.Partition)) bool {
	p := r.alone
	if p == nil {
		return false // the caller has to ask the primary by messages
	}
	r.own.Lock()
	if r.stopped.Load() {
		r.own.Unlock()
		return false
	}
	p.Look()
	for p.Busy() || p.Quiet() {
		r.own.Unlock()
		time.Sleep(time.Millisecond)
		r.own.Lock()
		if r.stopped.Load() {
			r.own.Unlock()
			return false
		}
		p.Look()
	}
	do(p)
	p.Tidy()
	r.called = true
	owes := p.Owes()
	r.own.Unlock()
	if owes {
		r.groups.Wake()
	}
	return true
}

// stopThread ends the thread. Nothing serves the partition afterwards.
func (r *runner) stopThread() {
	if !r.started {
		return
	}
	r.stopped.Store(true)
	r.groups.Wake()
	r.done.Wait()
	r.take() // attachments under way are closed with the partition
	if r.counted {
		wire.AddProcessors(-1)
	}
}

func (r *runner) close() error {
	r.own.Lock()
	defer r.own.Unlock()
	r.stopped.Store(true)
	var err error
	if r.p != nil {
		err = r.p.Close()
	}
	if r.groups != nil {
		err = errors.Join(err, r.groups.Close())
	}
	if r.store != nil {
		err = errors.Join(err, r.store.Close())
	}
	return err
}
