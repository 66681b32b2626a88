package mvcc

// StepPoint is a place where Options.Step is called. The token is not held there.
type StepPoint uint8

const (
	StepBetween StepPoint = iota // in background work, between two times that it holds the token
	StepWait                     // in a commit, before it waits for background work under way
)

func (f *file) step(p StepPoint) {
	if f.opts.Step != nil {
		f.opts.Step(p)
	}
}

// HoldToken takes the token until release is called. Together with Pushed it lets a test choose which commits become
// one batch.
func (e *Engine) HoldToken() (release func()) {
	e.token.take()
	return func() { e.token.pass(true) }
}

// Merging reports whether a background merge is not finished yet.
func (e *Engine) Merging() bool { return e.tree.tables.merging() }

// Pushed returns how many commits wait to be drained. The caller holds the token.
func (e *Engine) Pushed() int { return e.committer.pushed() }

// Pending reports whether commits are visible that the tree does not have yet.
func (e *Engine) Pending() bool { return e.tree.lags() }

// Redoing reports whether Open has left something to redo that is not in the tree yet.
func (e *Engine) Redoing() bool { return e.tree.redoing() }

// Housekeep does the background work that is due, as the engine's own goroutine would.
func (e *Engine) Housekeep() error { return e.maintenance.housekeep() }

// pushed is Engine.Pushed.
func (c *committer) pushed() (n int) {
	last := c.resolver.list.Drained()
	for node := c.resolver.list.Head(); node != last; node = node.Next() {
		n++
	}
	return n
}
