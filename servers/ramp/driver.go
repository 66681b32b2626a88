package ramp

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// No goroutine is dedicated to the engine. A caller that finds it free drives it until its own transaction is done,
// and others' with it; it then wakes a waiting caller, which continues. So a single call needs no wake-up, and with
// many calls the messages of all are sent together.

// A waiter is a call that waits for its transaction.
type waiter struct {
	done  atomic.Bool
	token chan struct{} // capacity 1: check again, or drive
}

func (w *waiter) settle() {
	w.done.Store(true)
	w.wake()
}

func (w *waiter) wake() {
	select {
	case w.token <- struct{}{}:
	default:
	}
}

// waiters has the unused waiters, and the list of those that wait, oldest first. mu guards the list.
type waiters struct {
	free sync.Pool
	mu   sync.Mutex
	list []*waiter
}

func (l *waiters) get() *waiter {
	w, _ := l.free.Get().(*waiter)
	if w == nil {
		w = &waiter{token: make(chan struct{}, 1)}
	}
	w.done.Store(false)
	select {
	case <-w.token:
	default:
	}
	return w
}

func (l *waiters) put(w *waiter) { l.free.Put(w) }

// next returns the oldest waiter that is not done.
func (l *waiters) next() *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.list) > 0 {
		w := l.list[0]
		if !w.done.Load() {
			return w
		}
		l.list = l.list[1:]
	}
	return nil
}

func (l *waiters) add(w *waiter) {
	l.mu.Lock()
	l.list = append(l.list, w)
	l.mu.Unlock()
}

func (l *waiters) remove(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, x := range l.list {
		if x == w {
			l.list = append(l.list[:i], l.list[i+1:]...)
			return
		}
	}
}

// do lets the driver run a task, at the latest when it wakes up.
func (c *Client) do(task func()) {
	c.mu.Lock()
	c.tasks = append(c.tasks, task)
	c.hasTask.Store(true)
	c.mu.Unlock()
	c.nudge()
	if c.lock.TryLock() {
		c.take()
		c.step()
		c.release()
	}
}

// nudge wakes a sleeping driver.
func (c *Client) nudge() {
	if n := c.sleeping.Load(); n != nil {
		n.group.Wake()
	}
}

// take runs the tasks that were left for the driver, in order.
func (c *Client) take() {
	for c.hasTask.Load() {
		c.mu.Lock()
		tasks := c.tasks
		c.tasks = nil
		c.hasTask.Store(false)
		c.mu.Unlock()
		for _, t := range tasks {
			t()
		}
	}
}

// release ends the driver's role.
func (c *Client) release() {
	for {
		w := c.waiters.next()
		c.lock.Unlock()
		if w != nil {
			w.wake()
		}
		if !c.hasTask.Load() || !c.lock.TryLock() {
			return
		}
		c.take()
		c.step()
	}
}

// wait starts a transaction and returns when it is done. give ends it early. start, give and the transaction's end
// run in the driver.
func (c *Client) wait(ctx context.Context, w *waiter, start func(), give func(why error)) error {
	if err := c.startErr(); err != nil {
		return err
	}
	began := func() {
		if err := c.startErr(); err != nil { // the engine is closed, or will be
			c.e.closed = ErrClosed
		}
		start()
	}
	if c.lock.TryLock() {
		c.take()
		began()
		c.drive(ctx, w, give)
		c.release()
		return nil
	}
	c.waiters.add(w)
	defer c.waiters.remove(w)
	c.do(began)
	for given := false; !w.done.Load(); {
		if c.lock.TryLock() {
			c.take()
			c.drive(ctx, w, give)
			c.release()
			return nil
		}
		done := ctx.Done()
		if given {
			done = nil
		}
		select {
		case <-w.token:
		case <-done:
			given = true
			c.do(func() { give(context.Cause(ctx)) })
		}
	}
	return nil
}

// drive steps the engine until the waiter's transaction is done.
func (c *Client) drive(ctx context.Context, w *waiter, give func(why error)) {
	for idle, polls := 0, 1; !w.done.Load(); polls++ {
		if c.hasTask.Load() {
			c.take()
			idle = 0
		}
		if c.step() {
			idle = 0
		} else {
			idle++
		}
		switch {
		case w.done.Load():
			return
		case idle > c.o.Spin:
			idle = 0
			c.sleep(ctx)
			c.tick()
		case polls%tickPolls == 0:
			c.tick()
		case idle%64 == 63:
			runtime.Gosched()
			continue
		default:
			continue
		}
		if ctx.Err() != nil || c.ctx.Err() != nil {
			why := context.Cause(ctx)
			if why == nil {
				why = ErrClosed
			}
			give(why)
		}
	}
}

// step moves messages and completions.
func (c *Client) step() (worked bool) {
	for _, n := range c.nets {
		worked = n.group.Step() || worked
		if done := n.group.Done(); len(done) > 0 {
			c.e.look()
			for _, d := range done {
				c.e.readDone(n.land, d.Token, d.Err)
			}
		}
	}
	worked = c.e.step() || worked
	for _, n := range c.nets {
		n.group.Flush()
	}
	return worked
}

// sleep waits until something happens: a message, a completion, a task.
func (c *Client) sleep(ctx context.Context) {
	if len(c.nets) != 1 {
		time.Sleep(100 * time.Microsecond) // it cannot wait on several networks at once
		return
	}
	n := c.nets[0]
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	for range 3 {
		if n.group.Arm() && len(n.group.Done()) == 0 {
			c.sleeping.Store(n)
			if !c.hasTask.Load() {
				n.group.Wait(ctx, 0)
			}
			c.sleeping.Store(nil)
			return
		}
		for _, d := range n.group.Done() {
			c.e.look()
			c.e.readDone(n.land, d.Token, d.Err)
		}
		if c.e.step() {
			return
		}
	}
}

// tick runs the engine's tick if that is due, and begins to dial partitions without a connection.
func (c *Client) tick() {
	now := time.Now()
	if now.Sub(c.ticked) < tickEvery {
		return
	}
	c.ticked = now
	c.e.tick()
	for _, n := range c.nets {
		n.group.Check(now)
	}
	for _, l := range c.e.links {
		if l.conn == nil && !l.dialing && c.e.now >= l.dialAfter && c.ctx.Err() == nil {
			l.dialing = true
			go c.redial(l, c.addresses(l))
		}
	}
}

// keep runs the engine while no caller does.
func (c *Client) keep() {
	defer close(c.kept)
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-t.C:
		}
		if !c.lock.TryLock() {
			continue
		}
		c.take()
		c.step()
		c.tick()
		c.step()
		c.release()
	}
}
