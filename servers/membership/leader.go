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

// The nodes elect a leader, who looks after the shards: it makes the record of a shard that has none, and has a primary replaced that is gone. A
// shard whose primary is the leader itself is looked after by the first secondary of its set, and so is every shard while there is no leader: to
// find out that a leader is gone takes a session's time, which no shard shall wait for. Two nodes may look after a shard at the same time;
// compare-and-set decides.
//
// A primary is replaced when two of these hold, or when it says itself that it does not reign: it does not answer the leader; its session is
// lost; a secondary has no ring of it. To be wrong costs the time until the next primary serves, and nothing else.

const (
	lookEveryMember = 50 * time.Millisecond
	// silentAfter is how long a member may owe an answer before it counts as one that does not answer. Longer: a primary that hangs is found later;
	// shorter: one that is not scheduled for a moment is replaced for nothing.
	silentAfter = 500 * time.Millisecond
	// reportWait is how long the leader waits for reports of members that it has a connection to; it goes on earlier once all have come.
	reportWait = 400 * time.Millisecond
	// newReign is how long a primary has to say that it reigns, from when the leader first sees its term.
	newReign = time.Second
	dialWait = 500 * time.Millisecond
	// setTimeout is how long a new record may take: an etcd whose disk is busy takes a second and more, and to begin anew takes longer.
	setTimeout = 5 * time.Second
)

// memberStatus is what a member says of itself.
type memberStatus struct {
	Reigns  uint64 `json:"reigns"`  // the term in which it is the primary, 0 if it is not
	Follows uint64 `json:"follows"` // the term of the primary that it has a ring of
	Barred  uint64 `json:"barred"`  // it follows nobody of a term below
}

// A reportBody is the answer to an order to stop.
type reportBody struct {
	Stopped bool `json:"stopped"`
	replica.Report
}

// A watched member is one of a shard's set, as the leader sees it.
type watched struct {
	link   *peerLink
	name   string
	dial   bool
	asked  time.Time // of the oldest question without an answer
	answer time.Time
	status memberStatus
	said   bool      // on this connection: status counts
	failed time.Time // when the last connection ended or could not be made
	fails  int
}

// A watch is a shard as the leader sees it.
type watch struct {
	number  uint32
	members map[string]*watched
	term    uint64
	since   time.Time // when the term was seen first
	stop    *replica.Failover
	stopAt  time.Time
	stopped map[string]bool // orders sent
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
	for name := range k.nodes { // if nobody of the set lives but the primary, anybody does
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
	dialled := make(chan dialledMember, 64)
	shards := map[uint32]*watch{}
	for ctx.Err() == nil {
		for more := true; more; {
			select {
			case d := <-dialled:
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
			m.look(ctx, group, shards[c.number], dialled)
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

// look goes on with one shard.
func (m *Node) look(ctx context.Context, group *wire.Group, w *watch, dialled chan dialledMember) {
	m.mu.Lock()
	rec, ok := m.records[w.number]
	m.mu.Unlock()
	now := time.Now()
	if rec.Term != w.term { // looked at by every node: whoever has to care later knows since when the reign lasts
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

// forget gives up what this node has to do with a shard that somebody else looks after.
func (w *watch) forget() {
	for name, x := range w.members {
		if x.link != nil {
			x.link.Close()
		}
		delete(w.members, name)
	}
	w.stop = nil
}

// found makes the record of a shard that has none: its first primary is the node whose file has the most, of those the one that comes first for
// the shard. Files have something where the cluster's directories are backups, or where its record was lost with etcd. Their terms may have gone
// on since in the cluster that they are from, so the new one begins above any of those: else two entries could have the same number and term.
func (m *Node) found(ctx context.Context, w *watch) {
	k := m.knows.Load()
	if !slices.Contains(k.state.Circle.All(), w.number) {
		return // it is retired
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

// revives makes a new record for a shard whose whole set is gone, once all nodes of it are back with other lives: the one whose file has the most
// entries goes on. What it lacks was not synced, in async mode; in memory mode it has nothing. No old life of a node lives any more, as the
// new one has its directory. Shards that belong together begin again together: none goes on in its next life before the sets of all others are gone
// as well, or have begun that life. Else a transaction that one of them has lost would stay in the memory of another one.
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

// survivor returns the member whose file has most of a shard whose whole set is gone. It returns false while one of the set lives, or its node is not back.
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

// ask keeps a connection to the member, and a question under way.
func (m *Node) ask(ctx context.Context, group *wire.Group, w *watch, x *watched, now time.Time, dialled chan dialledMember) {
	if x.link == nil {
		if x.dial || now.Sub(x.failed) < lookEveryMember {
			return
		}
		x.dial = true
		if x.asked.IsZero() {
			x.asked = now
		}
		number, name := w.number, x.name
		go func() {
			ctx, cancel := context.WithTimeout(ctx, dialWait)
			defer cancel()
			d := dialledMember{number: number, name: name}
			if e, ok := m.knows.Load().nodes[name]; ok {
				if c, err := m.dialPeer(ctx, group, e.Peer, peerHello{kind: peerOrders, shard: number, member: name}); err == nil {
					d.conn = c
				}
			}
			select {
			case dialled <- d:
			case <-m.ctx.Done():
				if d.conn != nil {
					d.conn.Close()
				}
			}
		}()
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
		return true // it says so itself: it was restarted, or stopped
	}
	for _, name := range rec.Set {
		if x := w.members[name]; x.said && x.status.Barred > rec.Term {
			return true // it was told to stop, and nobody has finished that: it follows nobody in this term, and nothing is committed without it
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
		if x := w.members[name]; name != rec.Primary && x.said && x.status.Follows < rec.Term && now.Sub(w.since) > newReign {
			reasons++
			break
		}
	}
	return reasons >= 2
}

// order tells the members to stop, and has the record changed when they have reported.
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
		return // the watch tells what has become of it
	}
	if now.Sub(w.stopAt) > reportWait {
		w.stop = nil // anew, if the primary is still suspected
	}
}
