package shard

import (
	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
)

// A View is what a node knows of its cluster as of a revision; it includes every change up to that revision. It is
// immutable once complete.
type View struct {
	Revision uint64
	Circle   circle.Assignment
	Changed  uint64 // revision of Circle, 0 if the cluster has stored none yet
	Seed     uint64
	Records  map[uint32]replica.Record // by shard

	at    *circle.Circle
	moves []circle.Move
}

// Complete derives the circle and the moves from the fields. last is an earlier view, or nil.
func (v *View) Complete(last *View) *View {
	if last != nil && last.Changed == v.Changed && last.Seed == v.Seed {
		v.at, v.moves = last.at, last.moves
	} else {
		v.at, v.moves = v.Circle.At(v.Seed), v.Circle.Moves(v.Seed)
	}
	return v
}

// At returns the present owner of each hash.
func (v *View) At() *circle.Circle { return v.at }

// move returns the move of a pair, nil if there is none.
func (v *View) move(p circle.Pair) *circle.Move {
	for i := range v.moves {
		if v.moves[i].Pair == p {
			return &v.moves[i]
		}
	}
	return nil
}

// See tells the shard what its node knows of the cluster. Older views have no effect. A shard without a view owns all
// keys.
func (s *Shard) See(v *View) {
	if s.view != nil && v.Revision <= s.view.Revision {
		return
	}
	if s.view == nil || s.view.Changed != v.Changed {
		s.tidy = nil // its ranges may belong to this shard by now, or soon
	}
	s.view = v
	if rec := v.Records[s.o.Shard]; s.o.Log != nil && rec.Revision > 0 {
		s.Learn(rec)
	}
}

// fresh reports whether the view includes everything that was agreed on before this reign began (invariant 14).
func (s *Shard) fresh() bool { return s.view != nil && s.view.Revision >= s.reignAt }

// serves returns StatusOK if this shard may serve the hash now, StatusMoved if the hash certainly belongs to another
// shard, and otherwise StatusUnavailable.
func (s *Shard) serves(h uint64) protocol.Status {
	switch {
	case s.o.Owns != nil && !s.o.Owns(h):
		return protocol.StatusMoved
	case s.view == nil:
		return protocol.StatusOK
	case !s.fresh():
		return protocol.StatusUnavailable
	}
	if owner, _ := s.view.at.Owner(h); owner != s.o.Shard {
		if s.unsure() { // a later primary may have decided a write of the key, which this one would report as never applied
			return protocol.StatusUnavailable
		}
		return protocol.StatusMoved
	}
	if m := s.out; m != nil && m.phase >= moveCloses && circle.In(m.Ranges, h) {
		return protocol.StatusUnavailable
	}
	return protocol.StatusOK
}

// servesFrom returns the status of serves for h, and the last hash up to most for which it holds.
func (s *Shard) servesFrom(h, most uint64) (last uint64, status protocol.Status) {
	if status = s.serves(h); status != protocol.StatusOK || s.view == nil {
		return most, status
	}
	last = min(most, s.view.at.Run(h))
	if m := s.out; m != nil && m.phase >= moveCloses && circle.Meet(m.Ranges, h, last) {
		return last, protocol.StatusUnavailable
	}
	return last, protocol.StatusOK
}

// unowned returns the ranges that do not belong to this shard and are not moving
// to it.
func (s *Shard) unowned() []circle.Range {
	keep := s.view.at.Ranges(s.o.Shard)
	for i := range s.view.moves {
		if m := &s.view.moves[i]; m.To == s.o.Shard && !m.Moved {
			keep = append(keep, m.Ranges...)
		}
	}
	return circle.Rest(circle.Sorted(keep))
}
