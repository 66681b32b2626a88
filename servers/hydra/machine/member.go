package machine

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"flashdbm/servers/replica"
	"flashdbm/servers/shard"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// What a shard's thread does where the shard is one of several replicas: connections to other members, orders of the leader, and changes of the
// record, which goroutines make.

var nodeName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (o *ClusterOptions) check(d shard.Durability) error {
	switch {
	case !nodeName.MatchString(o.Node):
		return fmt.Errorf("machine: a node's name has 1 to 64 letters, digits, - and _; %q is none", o.Node)
	case o.Cluster == nil:
		return errors.New("machine: no cluster to join")
	case o.Replicas < 0 || o.Replicas > 7:
		return fmt.Errorf("machine: %d replicas; 1 to 7 are possible", o.Replicas)
	case o.LogBytes != 0 && (o.LogBytes < 64<<10 || o.LogBytes&(o.LogBytes-1) != 0):
		return fmt.Errorf("machine: a log of %d bytes; want a power of two from 65,536", o.LogBytes)
	}
	return nil
}

// copyPath is where a copy is made until it is whole.
func (r *runner) copyPath() string { return r.path() + ".copy" }

// membership makes the shard a replica.
func (r *runner) membership() (m shard.Membership, err error) {
	n := r.n
	size := cmp.Or(n.members.o.LogBytes, defaultLog)
	d := n.o.Listen[n.members.listen].Domain
	m = shard.Membership{
		Self: n.members.self, MinInSync: n.members.config.MinInSync, Ended: n.members.ended[r.number], RingSize: size, Memory: d,
	}
	switch {
	case n.o.Durability == shard.Sync:
		m.Mode = replica.Synced
	case n.members.config.Strict:
		m.Mode = replica.Strict
	}
	var seq uint64
	var terms []replica.Term
	if r.store != nil {
		os.Remove(r.copyPath()) // it was not whole when the last life ended
		st := r.store.State()
		seq = st.Seq
		for _, t := range slices.Backward(st.Terms[:]) {
			if t.Term != 0 {
				terms = append(terms, replica.Term{Term: t.Term, First: t.First})
			}
		}
		if r.found.First = seq; len(terms) > 0 {
			r.found.Term = terms[len(terms)-1].Term
		}
		m.Fresh, m.Keep = r.fresh, r.keep
	}
	m.Log, err = replica.NewLog(d, size, seq, terms)
	return m, err
}

// fresh gives the shard an empty file for a copy. What it had is kept until the copy is whole.
func (r *runner) fresh() (*store.Store, error) {
	if err := r.store.Discard(); err != nil {
		return nil, err
	}
	if err := os.Remove(r.copyPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	s, err := r.openStore(r.copyPath())
	if err != nil {
		return nil, err
	}
	r.store = s
	s.Start()
	return s, nil
}

// keep makes the copy the shard's file.
func (r *runner) keep() error {
	if err := os.Rename(r.copyPath(), r.path()); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(r.path()))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// takeMember takes a record, or a connection of another node.
func (r *runner) takeMember(a *attachment) {
	switch {
	case a.view != nil:
		r.shard.See(a.view)
	case a.record != nil:
		r.shard.Learn(*a.record)
	case a.linked != nil:
		a.linked(a.conn, r)
	default:
		a.group.Add(a.conn)
		a.peer.conn = a.conn.(wire.Writer)
		if a.peer.kind == peerOrders {
			r.orders = append(r.orders, a.peer)
			return
		}
		if r.links = append(r.links, a.peer); a.peer.kind == peerMoves {
			r.shard.Arrive(a.peer)
			return
		}
		r.shard.Follower().Offered(a.peer)
	}
}

// confer does what the shard wants of other nodes, and what they want.
func (r *runner) confer() (worked bool) {
	n := r.n
	reign := r.shard.Reign()
	serves := uint64(0)
	if reign != nil && reign.Serving() {
		serves = reign.Term()
	}
	if r.serves.Load() != serves {
		r.serves.Store(serves)
	}
	worked = r.obey()
	for _, l := range r.links {
		if len(l.held) > 0 {
			l.flush()
		}
	}
	if reign == nil {
		r.known, r.heirSince = nil, time.Time{}
		return worked
	}
	if k := n.members.known.Load(); k != r.known || r.read.Sub(r.planned) >= planEvery {
		r.known, r.planned = k, r.read
		r.plan(reign)
	}
	if next, ok := reign.Proposal(); ok {
		go n.members.change(n.ctx, r, next)
	}
	if name := reign.Dial(); name != "" {
		r.link(name, r.number, peerFollows, func(l *peerLink) {
			if l == nil {
				reign.NoLink(name)
				return
			}
			reign.Attach(name, l)
		})
	}
	r.moves()
	return worked
}

// link connects to a member, which need not be of this shard, and gives the shard's thread the link; nil: there is no connection now.
func (r *runner) link(name string, shard uint32, kind uint16, linked func(*peerLink)) {
	n := r.n
	group := r.groups[r.groupOf[n.members.listen]]
	e, lives := n.members.known.Load().nodes[name]
	go func() {
		var conn wire.Conn
		if lives {
			ctx, cancel := context.WithTimeout(n.ctx, dialWait)
			defer cancel()
			if c, err := n.dialPeer(ctx, group, e.Peer, peerHello{kind: kind, shard: shard, member: name}); err == nil {
				conn = c
			}
		}
		r.hand(n.ctx, attachment{conn: conn, linked: func(conn wire.Conn, r *runner) {
			if conn == nil {
				linked(nil)
				return
			}
			bare := conn.(*provingConn).Conn
			group.Add(bare)
			l := &peerLink{conn: prove(conn).(wire.Writer)}
			r.links = append(r.links, l)
			linked(l)
		}})
	}()
}

// obey answers leaders.
func (r *runner) obey() (worked bool) {
	f := r.shard.Follower()
	stopped := f.Stopped()
	for _, revision := range stopped {
		r.report(revision, true)
	}
	gone := func(l *peerLink) bool {
		if l.Err() != nil {
			l.Close()
			return true
		}
		return false
	}
	r.orders = slices.DeleteFunc(r.orders, gone)
	if len(r.links) > 8 {
		r.links = slices.DeleteFunc(r.links, func(l *peerLink) bool { return l.Err() != nil })
	}
	for _, l := range r.orders {
		for {
			m, ok := l.next()
			if !ok {
				break
			}
			worked = true
			switch m.Op {
			case opStatus:
				s := memberStatus{Follows: f.Following()}
				if g := r.shard.Reign(); g != nil && !g.Over() {
					s.Reigns = g.Term()
				}
				b, _ := json.Marshal(s)
				l.put(opStatus, 0, b)
			case opStop:
				l.stop = 0
				if len(m.Body) < 8 {
					continue
				}
				revision := binary.LittleEndian.Uint64(m.Body)
				if rec, err := replica.ParseRecord(m.Body[8:], revision); err == nil {
					l.stop = revision
					if !r.shard.Stop(&rec) {
						r.report(revision, false)
					}
				}
			}
		}
	}
	return worked || len(stopped) > 0
}

// report answers orders to stop.
func (r *runner) report(revision uint64, stopped bool) {
	b, _ := json.Marshal(reportBody{Stopped: stopped, Report: r.shard.Follower().Report()})
	for _, l := range r.orders {
		if l.stop == revision {
			l.stop = 0
			l.put(opStop, revision, b)
		}
	}
}
