package dbm

import (
	"sync/atomic"

	"flashdbm/mvcc"
)

// A stepper runs background work in a separate goroutine, one step at a time. Between its steps, the script runs.
type stepper struct {
	resume  chan struct{}
	yield   chan struct{}
	active  bool // the goroutine has not finished its work
	running bool // the goroutine is running, and not the script
	err     error
	then    func()      // called when it ends without an error
	waited  atomic.Bool // a commit has to wait for background work
}

// start begins work without running any step.
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

// advance runs one step of the work.
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

// finish runs the work to its end.
func (s *stepper) finish() (err error) {
	for s.active {
		err = s.advance()
	}
	return err
}

// step is the engine's hook. Background work stops here after each step. A commit that waits for background work
// runs it to its end.
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
