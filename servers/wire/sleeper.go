package wire

import (
	"context"
	"sync/atomic"
)

// A Sleeper waits on a group while a thread sleeps on another one, and wakes the thread if anything comes. The thread calls Start before it
// sleeps, Stop once it is awake, one after the other, and End when it sleeps no more.
type Sleeper struct {
	group *Group
	wake  func()
	begin chan context.Context
	ended chan struct{} // has room for one: who has ended a wait need not find anybody who takes it
	over  atomic.Bool   // the thread is awake; set before the group is woken for that
}

// NewSleeper returns a sleeper, which calls wake from a goroutine of its own.
func NewSleeper(g *Group, wake func()) *Sleeper {
	s := &Sleeper{group: g, wake: wake, begin: make(chan context.Context), ended: make(chan struct{}, 1)}
	go s.run()
	return s
}

// Start begins a wait that ends with ctx, by Stop, or once the group is notified or woken.
func (s *Sleeper) Start(ctx context.Context) {
	s.over.Store(false)
	s.begin <- ctx
}

// Stop ends the wait. A sleeper that has ended by itself is not woken: that would end its next wait, and so the thread's next sleep, and the one behind that.
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

// End ends the sleeper's goroutine, between two waits.
func (s *Sleeper) End() { close(s.begin) }

func (s *Sleeper) run() {
	for ctx := range s.begin {
		s.group.Wait(ctx, 0)
		if !s.over.Load() {
			s.wake()
		}
		s.ended <- struct{}{}
	}
}
