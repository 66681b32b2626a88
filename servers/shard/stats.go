package shard

import "flashdbm/servers/replica"

// Stats are the state and the counters of a shard at one moment.
type Stats struct {
	Term      uint64 `json:"term"`
	Seq       uint64 `json:"seq"`       // of the newest change
	Committed uint64 `json:"committed"` // of the newest acknowledged change
	// Requests: handled since the start; each part of a batch counts, and a request that waited for the file counts
	// again
	Requests    uint64 `json:"requests"`
	Connections int    `json:"connections"`
	Records     int    `json:"records_in_memory"`
	LiveBytes   int64  `json:"live_bytes"`     // of items in memory
	DeadBytes   int64  `json:"dead_bytes"`     // of items that wait for the end of their leases
	Capacity    int64  `json:"capacity_bytes"` // of the items' memory
	TableBytes  int    `json:"table_bytes"`
	Backlog     int64  `json:"backlog_bytes"` // on their way to the file
	Loaded      bool   `json:"loaded"`        // the file's records are in memory, as far as they fit
	// Only with replicas.
	Role    string                `json:"role,omitempty"`      // primary or secondary
	Whole   bool                  `json:"whole,omitempty"`     // this member has more than a part of a copy
	Set     []string              `json:"set,omitempty"`       // the members that must have a write, as this member knows
	Tenure  int64                 `json:"tenure_ms,omitempty"` // remaining
	Members []replica.MemberStats `json:"members,omitempty"`   // the secondaries, as the primary sees them
	Move    *MoveStats            `json:"move,omitempty"`      // the move from the primary to another shard
	// HandsOver says that the primary is about to give its reign to another member.
	HandsOver bool `json:"hands_over,omitempty"`
	Serving   bool `json:"serving"` // false while the tenure of an earlier life may last, and after a failure
}

// Stats returns the shard's statistics. The shard's thread calls it.
func (s *Shard) Stats() Stats {
	st := Stats{
		Term: s.term, Seq: s.seq, Committed: s.shown, Requests: s.served, Connections: len(s.conns), Records: s.table.Len(),
		LiveBytes: s.arena.Live(), DeadBytes: s.arena.Dead(), Capacity: s.arena.Capacity(), TableBytes: s.table.Bytes(),
		Loaded: s.complete, Serving: s.failed == nil && s.now >= s.quiet && !s.passive(),
	}
	if s.o.Log != nil {
		s.memberStats(&st)
	}
	if s.o.Store != nil {
		st.Backlog = s.o.Store.Backlog()
	}
	return st
}

func (s *Shard) memberStats(st *Stats) {
	st.Term, st.Role, st.Whole, st.Set = s.Record().Term, "secondary", s.Follower().Whole(), s.Record().Set
	if s.Reign() != nil {
		st.Role, st.Members = "primary", s.Reign().Members()
		st.HandsOver, st.Move = s.Reign().Yields(), s.moveStats()
		st.Tenure = max(0, s.Reign().TenureEnd()-s.now) / 1e6
	}
}
