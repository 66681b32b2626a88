package shard

import (
	"flashdbm/servers/circle"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
)

// A View is what a node knows of its cluster as of a revision: every change up to it is in it. It does not change.
type View struct {
	Revision uint64
	Circle   circle.Assignment
	Changed  uint64 // revision of Circle, 0 if the cluster has none of its own yet
	Seed     uint64
	Records  map[uint32]replica.Record // by shard

	at    *circle.Circle
	moves []circle.Move
}

// Complete makes what follows from the fields. last is an earlier view, or nil.
func (v *View) Complete(last *View) *View {
	if last != nil && last.Changed == v.Changed && last.Seed == v.Seed {
		v.at, v.moves = last.at, last.moves
	} else {
		v.at, v.moves = v.Circle.At(v.Seed), v.Circle.Moves(v.Seed)
	}
	return v
}

// At returns whose each hash is.
func (v *View) At() *circle.Circle { return v.at }

// move returns what goes from one shard to another, nil if nothing does.
func (v *View) move(p circle.Pair) *circle.Move {
	for i := range v.moves {
		if v.moves[i].Pair == p {
			return &v.moves[i]
		}
	}
	return nil
}

// See tells the shard what its node knows of the cluster. Older views change nothing. A shard that has never got one owns all keys.
func (s *Shard) See(v *View) {
	if s.view != nil && v.Revision <= s.view.Revision {
		return
	}
	if s.view == nil || s.view.Changed != v.Changed {
		s.tidy = nil // what it goes over may be this shard's, or about to be
	}
	s.view = v
	if rec := v.Records[s.o.Shard]; s.o.Log != nil && rec.Revision > 0 {
		s.Learn(rec)
	}
}

// fresh reports whether the view knows all that was agreed on before this reign began (invariant 14).
func (s *Shard) fresh() bool { return s.view != nil && s.view.Revision >= s.reignAt }

// serves returns StatusOK if this shard may serve the hash now, StatusMoved if it is another one's for sure, and else StatusUnavailable.
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
		if s.unsure() { // a later primary may have decided a write of the key, which this one would say was never applied
			return protocol.StatusUnavailable
		}
		return protocol.StatusMoved
	}
	if m := s.out; m != nil && m.phase >= moveCloses && circle.In(m.Ranges, h) {
		return protocol.StatusUnavailable
	}
	return protocol.StatusOK
}

// servesFrom returns what serves does, and how far behind the hash it is the same.
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

// unowned returns what is neither this shard's nor about to be.
func (s *Shard) unowned() []circle.Range {
	keep := s.view.at.Ranges(s.o.Shard)
	for i := range s.view.moves {
		if m := &s.view.moves[i]; m.To == s.o.Shard && !m.Moved {
			keep = append(keep, m.Ranges...)
		}
	}
	return circle.Rest(circle.Sorted(keep))
}
