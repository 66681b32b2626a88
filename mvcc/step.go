package mvcc

// StepPoint is a place where Options.Step is called. The baton is not held there.
type StepPoint uint8

const (
	StepBetween StepPoint = iota // in the housekeeping, between two turns with the baton
	StepWait                     // in a commit, before it waits for the housekeeping under way
)

func (e *Engine) step(p StepPoint) {
	if e.opts.Step != nil {
		e.opts.Step(p)
	}
}

// HoldBaton takes the baton until release is called. With Pushed it lets a test choose which commits become one batch.
func (e *Engine) HoldBaton() (release func()) {
	e.takeBaton()
	return func() { e.putBaton(true) }
}

// Merging reports whether a merge in the background is not settled yet.
func (e *Engine) Merging() bool { return e.tables.merging() }

// Pushed returns how many commits wait to be drained. The caller holds the baton.
func (e *Engine) Pushed() (n int) {
	last := e.list.Drained()
	for node := e.list.Head(); node != last; node = node.Next() {
		n++
	}
	return n
}
