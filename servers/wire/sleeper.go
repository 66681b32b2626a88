package wire

import (
	"context"
	"sync/atomic"
)

// A Sleeper waits on a group while a thread sleeps on another group, and wakes the thread if anything comes. The
// thread calls Start before each sleep and Stop after it, and End when it needs the Sleeper no longer.
type Sleeper struct {
	group *Group
	wake  func()
	begin chan context.Context
	ended chan struct{} // capacity 1: run need not find a receiver when a wait has ended
	over  atomic.Bool   // the thread is awake; set before Stop wakes the group
}

// NewSleeper returns a Sleeper. It calls wake from a goroutine of its own.
func NewSleeper(g *Group, wake func()) *Sleeper {
	s := &Sleeper{group: g, wake: wake, begin: make(chan context.Context), ended: make(chan struct{}, 1)}
	go s.run()
	return s
}

// Start begins a wait, which ends with ctx, by Stop, or once the group is notified or woken.
func (s *Sleeper) Start(ctx context.Context) {
	s.over.Store(false)
	s.begin <- ctx
}

// Stop ends the wait. It does not wake a wait that has already ended: that wake-up would end the next wait, and so
// the thread's next sleep, and then again the one after it.
func (s *Sleeper) Stop() {
	s.over.Store(true)
	select {
	case <-s.ended:
		return
	default:
	}
	s.group.Wake()
	<-s.ended
}

// End ends the Sleeper's goroutine. It is called between Stop and Start.
func (s *Sleeper) End() { close(s.begin) }

func (s *Sleeper) run() {
	for ctx := range s.begin {
		s.group.Wait(ctx, 0)
		if !s.over.Load() && ctx.Err() == nil { // else the thread's sleep ends too, at the same time
			s.wake()
		}
		s.ended <- struct{}{}
	}
}
