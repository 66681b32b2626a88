package hydra

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// How callers share the engine.
//
// The caller that holds the lock is the driver. It steps the engine until its own calls are done, and starts calls
// that others submit in the meantime. No submission is lost:
//
//   - A goroutine that submits a call or a task then tries the lock. If that fails there is a driver, which checks
//     for submissions after it has unlocked. The lock and the stack order the two, so one of them sees the other.
//   - A driver that stops wakes the waiter of the oldest call, which takes the lock, or fails because another
//     goroutine has it.
//   - A driver that sleeps announces it before its last check for submissions. A submitter reads the announcement
//     after submitting, and wakes the driver.

// Spinning. A driver polls Options.Spin times in vain, by default spinPolls, before it sleeps; every yieldPolls polls
// it lets other goroutines run, which may submit calls, or which are callers whose calls are done.
const (
	spinPolls  = 2000
	yieldPolls = 16
	tickPolls  = 512 // polls between readings of the clock
)

// submit leaves a call to the driver.
func (c *Client) submit(x *call) {
	for {
		x.next = c.submitted.Load()
		if c.submitted.CompareAndSwap(x.next, x) {
			return
		}
	}
}

// do lets the driver run a task on the engine, at the latest when it wakes up.
func (c *Client) do(task func(*engine)) {
	c.taskMu.Lock()
	c.tasks = append(c.tasks, task)
	c.hasTasks.Store(true)
	c.taskMu.Unlock()
	c.nudge()
	if c.lock.TryLock() {
		c.take()
		c.e.Step()
		c.release()
	}
}

// nudge wakes a sleeping driver.
func (c *Client) nudge() {
	if n := c.sleeping.Load(); n != nil {
		n.group.Wake()
	}
}

// pending reports whether something was submitted.
func (c *Client) pending() bool { return c.submitted.Load() != nil || c.hasTasks.Load() }

// take starts the submitted calls, in order, and then runs the tasks. It takes the tasks first: a task that withdraws
// a call was submitted after the call, so the call is among those started before. Only the driver calls take.
func (c *Client) take() {
	var tasks []func(*engine)
	if c.hasTasks.Load() {
		c.taskMu.Lock()
		tasks, c.tasks = c.tasks, nil
		c.hasTasks.Store(false)
		c.taskMu.Unlock()
	}
	var first *call
	for x := c.submitted.Swap(nil); x != nil; {
		next := x.next
		x.next, first, x = first, x, next
	}
	for first != nil {
		x := first
		first, x.next = x.next, nil
		c.e.start(x)
	}
	for _, task := range tasks {
		task(c.e)
	}
}

// release ends the driver's role.
func (c *Client) release() {
	for {
		next := c.e.oldest()
		c.lock.Unlock()
		if next != nil {
			next.wake()
		}
		if !c.pending() || !c.lock.TryLock() {
			return
		}
		c.take()
		c.e.Step()
	}
}

// run submits calls and returns when all are done.
func (c *Client) run(ctx context.Context, w *waiter, calls []*call) {
	if c.lines != nil {
		c.runLocal(ctx, w, calls)
		return
	}
	select {
	case <-w.token:
	default:
	}
	w.left.Store(int32(len(calls)))
	if c.lock.TryLock() {
		w.waits = false
		c.take()
		for _, x := range calls {
			c.e.start(x)
		}
		c.driveFor(ctx, w, calls)
		c.release()
		return
	}
	w.waits = true
	for _, x := range calls {
		c.submit(x)
	}
	c.nudge()
	done := ctx.Done()
	for tries := 0; !w.done(); {
		if c.lock.TryLock() {
			c.take()
			c.driveFor(ctx, w, calls)
			c.release()
			return
		}
		if tries++; tries <= 2 {
			runtime.Gosched()
			continue
		}
		select {
		case <-w.token:
		case <-done:
			ran := make(chan struct{})
			c.do(func(e *engine) {
				e.withdraw(calls, context.Cause(ctx))
				close(ran)
			})
			<-ran // the caller reuses the calls after this
			return
		}
	}
}

// driveFor steps the engine until the waiter's calls are done.
func (c *Client) driveFor(ctx context.Context, w *waiter, calls []*call) {
	for idle, polls := 0, 1; !w.done(); polls++ {
		if c.pending() {
			c.take()
			idle = 0
		}
		if c.e.Step() {
			idle = 0
		} else {
			idle++
		}
		switch {
		case w.done():
			return
		case idle > c.o.Spin:
			idle = 0
			c.sleep(ctx)
			c.tick()
		case polls%tickPolls == 0:
			c.tick()
		case idle%yieldPolls == yieldPolls-1:
			runtime.Gosched()
			continue
		default:
			continue
		}
		if err := ctx.Err(); err != nil {
			c.e.withdraw(calls, context.Cause(ctx))
		}
	}
}

// sleep waits until something happens: a message, a completion, a submitted call, or a nudge by the goroutine of
// keep.
func (c *Client) sleep(ctx context.Context) {
	if len(c.e.fabric) != 1 {
		time.Sleep(100 * time.Microsecond) // one goroutine cannot wait on several networks at once
		return
	}
	n := c.e.fabric[0]
	for range 3 {
		if n.group.Arm() {
			c.sleeping.Store(n)
			if !c.pending() {
				n.group.Wait(ctx, 0)
			}
			c.sleeping.Store(nil)
			return
		}
		if c.e.readsDone(n) || c.e.Step() {
			return
		}
	}
}

// tick runs the engine's Tick if that is due, and begins to dial shards without a connection. After Close it does
// nothing: a caller that has just made its own GET may come late, and a new connection would never be closed.
func (c *Client) tick() {
	now := time.Now()
	if c.e.closed != nil || now.Sub(c.ticked) < tickEvery {
		return
	}
	c.ticked = now
	c.e.Tick(now)
	c.tickDue.Store(c.e.now + int64(tickEvery))
	for _, s := range c.e.toDial() {
		go c.connect(s, c.e.addrsFor(s), c.e.numbers.next)
	}
}

// tickNow runs the engine's Tick, unless another goroutine drives it. Goroutines that Read one after another can keep
// the processors from the goroutine of keep for a quarter of a second, in which leases end.
func (c *Client) tickNow() {
	if c.lock.TryLock() {
		c.lookAfter()
		c.release()
	}
}

// lookAfter does everything that is due now. Only the driver calls it.
func (c *Client) lookAfter() {
	c.take()
	c.e.Step()
	c.tick()
	c.e.Step()
}

// keep runs the engine while no caller does.
func (c *Client) keep() {
	defer close(c.kept)
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-t.C:
		}
		if !c.lock.TryLock() {
			t.Reset(tickEvery)
			c.nudge()
			continue
		}
		c.lookAfter()
		if c.e.idle() {
			t.Reset(idleTick)
		} else {
			t.Reset(tickEvery)
		}
		c.release()
	}
}

// drivePlain steps the engine of a client that no other goroutine has yet.
func (c *Client) drivePlain(ctx context.Context, until func() bool) error {
	for polls := 1; !until(); polls++ {
		c.take()
		if !c.e.Step() {
			runtime.Gosched()
			if polls%tickPolls == 0 {
				c.tick()
				time.Sleep(50 * time.Microsecond)
			}
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w (%w)", ErrUnavailable, context.Cause(ctx))
		}
	}
	return nil
}
