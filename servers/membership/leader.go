package membership

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"flashdbm/servers/replica"
	"flashdbm/servers/wire"
)

// The nodes elect a leader, which looks after the shards: it makes the record of a shard that has none, and replaces
// a primary that has failed. If the leader itself is a shard's primary, the first secondary of the shard's set looks
// after the shard; the same holds for every shard while there is no leader, because detecting the loss of a leader
// takes a session's time, for which no shard should wait. Two nodes may look after a shard at the same time;
// compare-and-set decides.
//
// A primary is replaced when two of these hold, or when it reports itself that it does not reign: it does not answer
// the leader; its session is lost; a secondary has no ring of it. A wrong suspicion only costs the time until the
// next primary serves.

const (
	lookEveryMember = 50 * time.Millisecond
	// silentAfter is how long a member may owe an answer before it counts as not answering. Longer: a primary that
	// hangs is detected later. Shorter: a primary that is not scheduled for a moment is replaced needlessly.
	silentAfter = 500 * time.Millisecond
	// reportWait is how long the leader waits for the reports of connected members; it continues earlier once all
	// have come.
	reportWait = 400 * time.Millisecond
	// newReign is how long a primary may take to report that it reigns, and to give the secondaries rings, from when
	// the leader first sees its term.
	newReign = time.Second
	dialWait = 500 * time.Millisecond
	// setTimeout is how long setting a new record may take: an etcd with a busy disk takes a second and more, and
	// starting again takes longer.
	setTimeout = 5 * time.Second
)

// memberStatus is a member's report on itself.
type memberStatus struct {
	Reigns   uint64 `json:"reigns"`   // the term in which it is the primary, 0 if it is not
	Follows  uint64 `json:"follows"`  // the term of the primary whose ring it has
	Followed uint64 `json:"followed"` // the highest term whose primary it has had a ring of
	Barred   uint64 `json:"barred"`   // it follows no primary of a lower term
}

// A reportBody is the answer to an order to stop.
type reportBody struct {
	Stopped bool `json:"stopped"`
	replica.Report
}

// A watched is a member of a shard's set, as the leader sees it.
type watched struct {
	link   *peerLink
	name   string
	dial   bool      // a connection is being made
	asked  time.Time // when the oldest unanswered question was sent
	answer time.Time
	status memberStatus
	said   bool      // the member has answered on this connection: status counts
	failed time.Time // when the last connection ended or failed
	fails  int
}

// A watch is the leader's view of a shard.
type watch struct {
	number  uint32
	members map[string]*watched
	term    uint64
	since   time.Time // when the term was first seen
	stop    *replica.Failover
	stopAt  time.Time
	stopped map[string]bool // members to which the order was sent
	setting atomic.Bool     // a compare-and-set is under way
}

type dialledMember struct {
	number uint32
	name   string
	conn   wire.Conn
}

// cares reports whether this node looks after a shard. The record has revision 0 if there is none.
func (m *Node) cares(rec *replica.Record) bool {
	k := m.knows.Load()
	m.mu.Lock()
	leader := m.leader
	m.mu.Unlock()
	if _, lives := k.nodes[leader]; lives && leader != rec.Primary {
		return leader == m.self
	}
	first := ""
	for name := range k.nodes { // if only the primary of the set is alive, another node may look after the shard
		switch {
		case name == rec.Primary:
		case first == "", rec.Has(name) && !rec.Has(first), rec.Has(name) == rec.Has(first) && name < first:
			first = name
		}
	}
	return first == m.self || first == "" && rec.Primary == m.self
}

// lead looks after shards until the context ends.
func (m *Node) lead(ctx context.Context) {
	group, err := wire.NewGroup(m.site.Peers, 4096)
	if err != nil {
		return
	}
	defer group.Close()
	dialled := newDials[dialledMember]()
	shards := map[uint32]*watch{}
	defer func() {
		for _, w := range shards {
			w.forget()
		}
		dialled.end(func(d dialledMember) {
			if d.conn != nil {
				d.conn.Close()
			}
		})
	}()
	for ctx.Err() == nil {
		for more := true; more; {
			select {
			case d := <-dialled.made:
				dialled.left--
				if w := shards[d.number]; w != nil {
					m.attachWatched(group, w, d)
				} else if d.conn != nil {
					d.conn.Close()
				}
			default:
				more = false
			}
		}
		group.Step()
		group.Check(time.Now())
		list := m.Copies()
		for _, c := range list {
			if shards[c.number] == nil {
				shards[c.number] = &watch{number: c.number, members: map[string]*watched{}}
			}
			m.look(ctx, group, shards[c.number], &dialled)
		}
		for number, w := range shards {
			if !slices.ContainsFunc(list, func(c *Copy) bool { return c.number == number }) {
				w.forget()
				delete(shards, number)
			}
		}
		group.Flush()
		sleep(ctx, lookEveryMember)
	}
}

func (m *Node) attachWatched(group *wire.Group, w *watch, d dialledMember) {
	x := w.members[d.name]
	if x == nil || d.conn == nil {
		if d.conn != nil {
			d.conn.Close()
		}
		if x != nil {
			x.dial, x.failed, x.fails = false, time.Now(), x.fails+1
		}
		return
	}
	bare := d.conn.(*provingConn).Conn
	group.Add(bare)
	x.said = false
	x.link = &peerLink{conn: prove(d.conn).(wire.Writer)}
	x.dial, x.fails, x.asked, x.answer = false, 0, time.Time{}, time.Now()
}

// look advances the supervision of one shard.
func (m *Node) look(ctx context.Context, group *wire.Group, w *watch, dialled *dials[dialledMember]) {
	m.mu.Lock()
	rec, ok := m.records[w.number]
	m.mu.Unlock()
	now := time.Now()
	if rec.Term != w.term { // every node tracks this, so that a node that takes over later knows when the reign began
		w.term, w.since, w.stop = rec.Term, now, nil
	}
	if !m.cares(&rec) {
		w.forget()
		return
	}
	if !ok {
		m.found(ctx, w)
		return
	}
	if w.stop != nil && w.stop.Record().Revision != rec.Revision {
		w.stop = nil
	}
	for name, x := range w.members {
		if !rec.Has(name) {
			if x.link != nil {
				x.link.Close()
			}
			delete(w.members, name)
		}
	}
	for _, name := range rec.Set {
		x := w.members[name]
		if x == nil {
			x = &watched{name: name}
			w.members[name] = x
		}
		m.ask(ctx, group, w, x, now, dialled)
	}
	if m.revives(ctx, &rec, w, now) {
		return
	}
	if w.stop == nil {
		if m.suspects(&rec, w, now) {
			w.stop, w.stopAt, w.stopped = replica.NewFailover(rec), now, map[string]bool{}
		} else {
			return
		}
	}
	m.order(ctx, w, now)
}

// forget drops the state of a shard that another node looks after.
func (w *watch) forget() {
	for name, x := range w.members {
		if x.link != nil {
			x.link.Close()
		}
		delete(w.members, name)
	}
	w.stop = nil
}

// found makes the record of a shard that has none: its first primary is the node whose file has the newest entry, and
// of several the first in the shard's order. Files have entries if the cluster's directories are backups, or if etcd
// has lost the record. The terms of the cluster that wrote them may have advanced since, so the new term is above all
// of these terms: otherwise two entries could have the same number and term.
func (m *Node) found(ctx context.Context, w *watch) {
	k := m.knows.Load()
	if !slices.Contains(k.state.Circle.All(), w.number) {
		return // retired
	}
	best, file := "", replica.Term{}
	for _, name := range m.ranked(w.number) {
		if f := k.nodes[name].Files[w.number]; best == "" || f.Term > file.Term || f.Term == file.Term && f.First > file.First {
			best, file = name, f
		}
	}
	if best == "" {
		return
	}
	rec := replica.Record{Term: 1, Primary: best, Set: []string{best}}
	if file.First > 0 {
		rec.Term = max(file.Term+1, uint64(time.Now().Unix()))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m.o.Cluster.CompareAndSet(ctx, shardKey(w.number), 0, rec.Data())
}

// revives makes a new record for a shard whose whole set is gone, once all nodes of the set are back with new lives:
// the member whose file has the most entries becomes primary. In async mode the entries missing there were not
// synced; in memory mode there are none. No old life of a node is alive, because the new life holds the node's
// directory. Shards that belong together restart together: none enters its next life before the sets of all others
// are gone, too, or have entered that life. Otherwise a transaction that one shard has lost would survive in the
// memory of another.
func (m *Node) revives(ctx context.Context, rec *replica.Record, w *watch, now time.Time) bool {
	if m.table.Keeps || now.Sub(w.since) < newReign {
		return false
	}
	k := m.knows.Load()
	best, ok := k.survivor(w.number, rec)
	if !ok {
		return false
	}
	if m.table.Together {
		for number, other := range k.state.Records {
			if _, gone := k.survivor(number, &other); other.Life < rec.Life || other.Life == rec.Life && !gone {
				return false
			}
		}
	}
	next := replica.Record{Term: rec.Term + 1, Primary: best, Set: []string{best}, Life: rec.Life + 1}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m.o.Cluster.CompareAndSet(ctx, shardKey(w.number), rec.Revision, next.Data())
	return true
}

// survivor returns the member whose file has the most entries of a shard whose whole set is gone. It returns false
// while a member of the set is alive, or a node of the set is not back.
func (k *knowledge) survivor(number uint32, rec *replica.Record) (best string, ok bool) {
	file := replica.Term{}
	for _, name := range rec.Set {
		if _, lives := k.nodes[name]; lives {
			return "", false
		}
		node, _, _ := strings.Cut(name, ".")
		found := false
		for member, e := range k.nodes {
			if is, _, _ := strings.Cut(member, "."); is != node {
				continue
			}
			f := e.Files[number]
			if found = true; best == "" || f.Term > file.Term || f.Term == file.Term && f.First > file.First {
				best, file = member, f
			}
		}
		if !found {
			return "", false
		}
	}
	return best, best != ""
}

// ask keeps a connection to the member open, and a question under way.
func (m *Node) ask(ctx context.Context, group *wire.Group, w *watch, x *watched, now time.Time, dialled *dials[dialledMember]) {
	if x.link == nil {
		if x.dial || now.Sub(x.failed) < lookEveryMember {
			return
		}
		x.dial = true
		if x.asked.IsZero() {
			x.asked = now
		}
		number, name := w.number, x.name
		dialled.start(func() dialledMember {
			ctx, cancel := context.WithTimeout(ctx, dialWait)
			defer cancel()
			d := dialledMember{number: number, name: name}
			if e, ok := m.knows.Load().nodes[name]; ok {
				if c, err := m.dialPeer(ctx, group, e.Peer, peerHello{kind: peerOrders, shard: number, member: name}); err == nil {
					d.conn = c
				}
			}
			return d
		})
		return
	}
	for {
		msg, ok := x.link.next()
		if !ok {
			break
		}
		x.asked, x.answer = time.Time{}, now
		switch msg.Op {
		case opStatus:
			x.said = json.Unmarshal(msg.Body, &x.status) == nil
		case opStop:
			var r reportBody
			if json.Unmarshal(msg.Body, &r) == nil && r.Stopped && w.stop != nil && msg.Request == w.stop.Record().Revision {
				w.stop.Reported(x.name, r.Report)
			}
		}
	}
	if x.link.Err() != nil {
		x.link.Close()
		x.link, x.failed, x.asked, x.fails = nil, now, now, x.fails+1
		x.said = false
		return
	}
	if x.asked.IsZero() {
		x.asked = now
		x.link.put(opStatus, 0, nil)
	}
}

// suspects reports whether the primary should be replaced.
func (m *Node) suspects(rec *replica.Record, w *watch, now time.Time) bool {
	p := w.members[rec.Primary]
	if p.said && p.status.Reigns < rec.Term && now.Sub(w.since) > newReign {
		return true // it reports itself that it does not reign: it was restarted, or stopped
	}
	for _, name := range rec.Set {
		if x := w.members[name]; x.said && x.status.Barred > rec.Term {
			// it was told to stop, and no leader has finished the failover: it follows no primary in this term, and
			// nothing is committed without it
			return true
		}
	}
	reasons := 0
	if p.link == nil && p.fails > 0 || !p.asked.IsZero() && now.Sub(p.asked) > silentAfter {
		reasons++
	}
	if _, lives := m.knows.Load().nodes[rec.Primary]; !lives {
		reasons++
	}
	for _, name := range rec.Set {
		x := w.members[name]
		if name == rec.Primary || !x.said || x.status.Follows >= rec.Term {
			continue
		}
		if x.status.Followed >= rec.Term || now.Sub(w.since) > newReign { // it has lost the ring, or had time to get one
			reasons++
			break
		}
	}
	return reasons >= 2
}

// order orders the members to stop, and changes the record when they have reported.
func (m *Node) order(ctx context.Context, w *watch, now time.Time) {
	rec := w.stop.Record()
	waits := false
	for _, name := range w.stop.Members() {
		x := w.members[name]
		if x == nil || x.link == nil {
			continue
		}
		if name != rec.Primary {
			waits = true
		}
		if !w.stopped[name] {
			body := append(binary.LittleEndian.AppendUint64(nil, rec.Revision), rec.Data()...)
			w.stopped[name] = x.link.put(opStop, rec.Revision, body)
		}
	}
	if w.setting.Load() || waits && now.Sub(w.stopAt) < reportWait {
		return
	}
	if next, ok := w.stop.Next(); ok {
		w.setting.Store(true)
		go func() {
			defer w.setting.Store(false)
			ctx, cancel := context.WithTimeout(ctx, setTimeout)
			defer cancel()
			m.o.Cluster.CompareAndSet(ctx, shardKey(w.number), next.Revision, next.Data())
		}()
		return // the watch reports the outcome
	}
	if now.Sub(w.stopAt) > reportWait {
		w.stop = nil // start again if the primary is still suspected
	}
}
