package dbm

import (
	"sync/atomic"

	"flashdbm/mvcc"
)

// A stepper runs background work on a goroutine of its own, one step at a time: it stands still between steps, in which the script goes on.
type stepper struct {
	resume  chan struct{}
	yield   chan struct{}
	active  bool // there is a goroutine, in the middle of its work
	running bool // it is its turn
	err     error
	then    func()      // called when it ends without an error
	waited  atomic.Bool // a commit has come to wait for background work
}

// start begins work without doing any of it.
func (s *stepper) start(work func() error, then func()) {
	s.resume, s.yield = make(chan struct{}), make(chan struct{})
	s.active, s.err, s.then = true, nil, then
	go func() {
		<-s.resume
		s.err = work()
		s.active = false
		s.yield <- struct{}{}
	}()
}

// advance lets the work take one step.
func (s *stepper) advance() error {
	if !s.active {
		return nil
	}
	s.running = true
	s.resume <- struct{}{}
	<-s.yield
	s.running = false
	if !s.active && s.err == nil && s.then != nil {
		s.then()
	}
	return s.err
}

// finish lets the work go on to its end.
func (s *stepper) finish() (err error) {
	for s.active {
		err = s.advance()
	}
	return err
}

// step is the engine's hook. Background work stops here, a commit that waits for it lets it end.
func (s *stepper) step(p mvcc.StepPoint) {
	switch {
	case p == mvcc.StepWait && !s.running:
		s.waited.Store(true)
		s.finish()
	case p == mvcc.StepBetween && s.running:
		s.yield <- struct{}{}
		<-s.resume
	}
}
