package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// yield begins a handover to a, and lets time pass until the reign is closed.
func (s *stage) yield(stays bool) {
	require.True(s.t, s.r.HandOver("a", stays))
	assert.True(s.t, s.r.Yields())
	for began := s.now; !s.r.Closed(); s.pass(50 * time.Millisecond) {
		require.Less(s.t, s.now-began, 2*StopWait)
		_, ok := s.next()
		require.False(s.t, ok, "nothing is proposed before")
		assert.Positive(s.t, s.r.TenureEnd(), "it serves")
	}
}

// TestHandOver: a primary that has passed on no tenure for long enough, and has nothing in progress, proposes the next
// reign. From then on it tells clients nothing (invariant 11).
func TestHandOver(t *testing.T) {
	s := newStage(t, Relaxed, "a", "b")
	s.append(3)
	s.pass(askDue)
	began := s.now
	s.yield(true)
	assert.GreaterOrEqual(t, s.now-began, StopWait, "what was passed on has ended")
	assert.Greater(t, s.r.TenureEnd(), s.now)
	s.r.Still()
	assert.Zero(t, s.r.TenureEnd(), "the heir may reign from now on")
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, Record{Revision: 1, Term: 2, Primary: "a", Set: []string{"p", "a", "b"}, Handed: true}, rec)
	s.r.Learn(s.r.Record())
	s.pass(askDue)
	assert.Zero(t, s.r.TenureEnd(), "the old record proves nothing")
	again, ok := s.next()
	require.True(t, ok, "it is proposed until the outcome is known")
	assert.Equal(t, rec, again)
	rec.Revision = 2
	s.r.Learn(rec)
	assert.True(t, s.r.Over())
	assert.True(t, s.r.Closed(), "it can follow with what it has")
}

// TestHandOverThatFails: another change of the record has come first, so the primary continues.
func TestHandOverThatFails(t *testing.T) {
	s := newStage(t, Relaxed, "a", "b")
	s.yield(false)
	s.r.Still()
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"a", "b"}, rec.Set, "it leaves the set with that")
	s.actors["a"].far.held = true // the heir falls silent: the set must continue without it
	for range 14 {
		s.pass(50 * time.Millisecond)
		rec, ok = s.next()
	}
	s.pass(askDue)
	if next, more := s.next(); more {
		rec, ok = next, more
	}
	require.True(t, ok)
	assert.Equal(t, Record{Revision: 1, Term: 1, Primary: "p", Set: []string{"p", "b"}}, rec)
	assert.Zero(t, s.r.TenureEnd(), "the first proposal may still be the one that happens")
	s.pass(askDue)
	assert.Zero(t, s.r.TenureEnd())
	rec.Revision = 2
	s.r.Learn(rec)
	s.runAll()
	assert.Greater(t, s.r.TenureEnd(), s.now, "it has happened instead")
	assert.False(t, s.r.Yields())
	assert.False(t, s.r.HandOver("a", false), "it is in the set no more")
}

// TestHeirHasAll: the next reign is proposed only after everything is committed and the heir has merged all of it.
// Requests do not wait for that for ever.
func TestHeirHasAll(t *testing.T) {
	s := newStage(t, Relaxed, "a", "b")
	assert.False(t, s.r.HandOver("c", false), "a stranger lacks everything")
	s.yield(true)
	s.actors["a"].noRoom = true
	s.append(1)
	s.runAll()
	s.r.Still()
	_, ok := s.next()
	assert.False(t, ok, "the heir has it in its ring only")
	assert.Positive(t, s.r.TenureEnd())
	for range 8 {
		s.pass(50 * time.Millisecond)
	}
	assert.False(t, s.r.Closed(), "requests are served again")
	assert.True(t, s.r.Yields())
	s.actors["a"].noRoom = false
	for range 25 {
		s.pass(50 * time.Millisecond)
		if s.r.Closed() {
			s.r.Still()
		}
	}
	rec, ok := s.next()
	require.True(t, ok, "it has tried again")
	assert.Equal(t, "a", rec.Primary)
}

// TestHandedReignBeginsAtOnce: the heir does not wait for the end of any tenure. A reign that was not handed over
// does.
func TestHandedReignBeginsAtOnce(t *testing.T) {
	for _, handed := range []bool{true, false} {
		s := newStage(t, Relaxed)
		rec := Record{Revision: 2, Term: 2, Primary: "p", Set: []string{"p", "a"}, Handed: handed}
		s.r = NewReign(ReignOptions{Self: "p", Log: s.log, Source: s, Record: rec, StopAt: s.now})
		s.actor("a", Relaxed)
		assert.False(t, s.r.Serving(), "a may lack what the reign began with")
		s.runAll()
		assert.Equal(t, handed, s.r.Serving())
		s.now += StopWait
		s.pass(askDue)
		assert.True(t, s.r.Serving())
	}
}

// TestLeavesOnceEnoughAreLeft: a member that has to leave the set does so once as many members are left as are wanted
// (invariant 14).
func TestLeavesOnceEnoughAreLeft(t *testing.T) {
	s := newStage(t, Strict, "a")
	b := s.actor("b", Strict)
	b.noRoom = true
	s.append(1)
	s.r.Want(Wishes{In: []string{"b"}, Out: []string{"a"}, Least: 2})
	s.pass(askDue)
	_, ok := s.next()
	assert.False(t, ok, "a would leave the primary alone")
	b.noRoom = false
	s.pass(askDue)
	rec, ok := s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "a", "b"}, rec.Set)
	assert.False(t, s.r.HandOver("b", false), "it is not known to be in the set")
	rec.Revision = 2
	s.r.Learn(rec)
	s.pass(askDue)
	rec, ok = s.next()
	require.True(t, ok)
	assert.Equal(t, []string{"p", "b"}, rec.Set)
	s.r.Want(Wishes{In: []string{"b"}, Out: []string{"p"}, Least: 1})
	rec.Revision = 3
	s.r.Learn(rec)
	s.pass(askDue)
	_, ok = s.next()
	assert.False(t, ok, "the primary leaves by handing over")
}
