package wire

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"flashdbm/servers/fabric"
)

// Groups are all groups of a thread that serves: one for each domain. The thread calls the methods, or the goroutine
// that serves in its place while it sleeps; any goroutine may call At and Wake.
type Groups struct {
	list    []*Group
	domains []fabric.Domain
	others  []*Sleeper    // of all groups but the first, on which the thread itself sleeps
	bell    chan struct{} // without a group, the thread sleeps on it; capacity 1
}

// NewGroups returns a group for each of the domains; a domain that is listed several times gets one group. A
// group's connections together have at most about ops operations under way.
func NewGroups(domains []fabric.Domain, ops int) (*Groups, error) {
	s := &Groups{bell: make(chan struct{}, 1)}
	for _, d := range domains {
		if slices.Contains(s.domains, d) {
			continue
		}
		g, err := NewGroup(d, ops)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		if s.list, s.domains = append(s.list, g), append(s.domains, d); len(s.list) > 1 {
			s.others = append(s.others, NewSleeper(g, s.Wake))
		}
	}
	return s, nil
}

// At returns the group of a domain.
func (s *Groups) At(d fabric.Domain) *Group { return s.list[slices.Index(s.domains, d)] }

// Step makes progress with all connections, and reports whether there was any.
func (s *Groups) Step() (worked bool) {
	for _, g := range s.list {
		worked = g.Step() || worked
	}
	return worked
}

// Flush sends what the connections have gathered.
func (s *Groups) Flush() {
	for _, g := range s.list {
		g.Flush()
	}
}

// Check looks after the connections. It is called from time to time.
func (s *Groups) Check(now time.Time) {
	for _, g := range s.list {
		g.Check(now)
	}
}

// Arm reports whether all peers will wake the thread from now on, and nothing has come so far.
func (s *Groups) Arm() bool {
	ready := true
	for _, g := range s.list {
		ready = g.Arm() && ready
	}
	return ready
}

// Sleep returns when a peer has notified the thread since Arm, when the thread was woken, or when d has passed. It
// reports whether anything but the time has ended it.
func (s *Groups) Sleep(d time.Duration) (woken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	for _, x := range s.others {
		x.Start(ctx)
	}
	if len(s.list) > 0 {
		woken = s.list[0].Wait(ctx, 0) == nil
	} else {
		select {
		case <-s.bell:
			woken = true
		case <-ctx.Done():
		}
	}
	cancel()
	for _, x := range s.others {
		x.Stop()
	}
	return woken
}

// Wake ends the thread's sleep, or its next one.
func (s *Groups) Wake() {
	if len(s.list) > 0 {
		s.list[0].Wake()
		return
	}
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// Close closes all connections, and the queues. The thread has ended.
func (s *Groups) Close() error {
	for _, x := range s.others {
		x.End()
	}
	var err error
	for _, g := range s.list {
		err = errors.Join(err, g.Close())
	}
	return err
}

// processors guards the value of GOMAXPROCS, which all threads that poll change.
var processors sync.Mutex

// AddProcessors changes GOMAXPROCS by n: 1 for a thread that begins to poll, so that goroutines keep the processors
// that they had, and -1 at its end.
func AddProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}
