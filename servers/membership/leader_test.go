package membership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"flashdbm/servers/replica"
)

// TestSuspects: a primary is replaced only if there are two reasons. A secondary that has lost the ring of the primary
// is a reason at once, also at the beginning of a term. A secondary that has not had a ring yet is a reason only after
// the time that it needs to get one.
func TestSuspects(t *testing.T) {
	const term = 7
	now := time.Now()
	healthy := memberStatus{Follows: term, Followed: term, Barred: term}
	lost := memberStatus{Followed: term, Barred: term}
	without := memberStatus{Followed: term - 1, Barred: term}
	for _, c := range []struct {
		what      string
		secondary memberStatus
		lives     bool // the primary's session
		broken    bool // the leader's connection to the primary
		silent    time.Duration
		age       time.Duration // of the term
		want      bool
	}{
		{"nothing", healthy, true, false, 0, time.Minute, false},
		{"no connection", healthy, true, true, 0, time.Minute, false},
		{"no session", healthy, false, false, 0, time.Minute, false},
		{"a ring lost", lost, true, false, 0, time.Minute, false},
		{"no ring", without, true, false, 0, time.Minute, false},
		{"silent for a moment, a ring lost", lost, true, false, silentAfter / 2, time.Minute, false},
		{"silent, a ring lost", lost, true, false, 2 * silentAfter, time.Minute, true},
		{"no connection, no session", healthy, false, true, 0, 0, true},
		{"no connection, a ring lost", lost, true, true, 0, time.Minute, true},
		{"no connection, a ring lost, new term", lost, true, true, 0, 0, true},
		{"no session, a ring lost, new term", lost, false, false, 0, 0, true},
		{"no connection, no ring, new term", without, true, true, 0, newReign / 2, false},
		{"no connection, no ring", without, true, true, 0, 2 * newReign, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := &Node{}
			k := &knowledge{nodes: map[string]nodeEntry{"b": {}, "c": {}}}
			if c.lives {
				k.nodes["a"] = nodeEntry{}
			}
			m.knows.Store(k)
			p := &watched{name: "a", link: &peerLink{}, said: true, status: memberStatus{Reigns: term}}
			if c.broken {
				p.link, p.said, p.fails = nil, false, 1
			}
			if c.silent > 0 {
				p.asked = now.Add(-c.silent)
			}
			w := &watch{term: term, since: now.Add(-c.age), members: map[string]*watched{
				"a": p, "b": {name: "b", said: true, status: c.secondary}, "c": {name: "c", said: true, status: healthy},
			}}
			rec := &replica.Record{Term: term, Primary: "a", Set: []string{"a", "b", "c"}}
			assert.Equal(t, c.want, m.suspects(rec, w, now))
		})
	}
}
