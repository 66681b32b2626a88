package shard

import (
	"fmt"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/replica"
)

// A memberLink is one end of a link between a primary and a secondary. Messages travel beside the endpoint, so they overtake Writes.
type memberLink struct {
	c     *clusterSim
	m     *simMember // whose end it is
	life  int
	other *memberLink
	far   *memberLink // of the primary's end: the other one
	ep    fabric.Endpoint
	in    []replica.Message
	done  int
	next  uint64 // ID of the next Write
	first uint64 // ID of the next completion
	last  time.Duration
	err   error
}

// dial connects the primary to a member.
func (m *simMember) dial(r *replica.Reign, name string) {
	c := m.c
	x := c.all[name]
	if x == nil || x.lost || !x.alive() || x.shard == nil || x.id != name {
		c.w.After(c.slow(), func() { r.NoLink(name) })
		return
	}
	l := &memberLink{c: c, m: m, life: m.life}
	l.far = &memberLink{c: c, m: x, life: x.life, other: l}
	l.other = l.far
	hello := fmt.Sprint(len(c.dialled))
	c.dialled[hello] = l
	m.n.Domain().DialFunc(x.addr(x.life), []byte(hello), fabric.EndpointOptions{Send: m.queue, Recv: m.queue, Depth: 64}, func(e fabric.Endpoint, _ []byte, err error) {
		if err != nil || m.shard == nil || m.shard.Reign() != r {
			if e != nil {
				e.Close()
			}
			r.NoLink(name)
			return
		}
		l.ep = e
		m.links = append(m.links, l)
		r.Attach(name, l)
		m.wake()
	})
}

// complete takes completions of Writes.
func (m *simMember) complete() {
	var wcs [16]fabric.WC
	for {
		n := m.queue.Poll(wcs[:])
		for _, wc := range wcs[:n] {
			i := int(wc.ID >> 32)
			if i >= len(m.links) {
				continue
			}
			l := m.links[i]
			if wc.Err != nil {
				l.fail(wc.Err)
			} else if l.err == nil {
				l.done++
			}
		}
		if n < len(wcs) {
			return
		}
	}
}

func (l *memberLink) index() uint64 {
	for i, x := range l.m.links {
		if x == l {
			return uint64(i)
		}
	}
	panic("no link")
}

func (l *memberLink) fail(err error) {
	if l.err == nil {
		l.err = err
		if l.ep != nil {
			l.ep.Close()
		}
	}
}

func (l *memberLink) Send(msg *replica.Message) {
	b := msg.Append(nil)
	var copied replica.Message
	if err := copied.Parse(b); err != nil {
		panic(err)
	}
	at := max(l.last, l.c.w.Now()+l.c.w.Delay())
	l.last = at
	sent := l.c.w.Now()
	var deliver func()
	deliver = func() {
		o := l.other
		switch {
		case o.err != nil || o.life != o.m.life || !o.m.alive():
		case l.c.w.Reaches(l.m.n, o.m.n):
			o.in = append(o.in, copied)
			o.m.wake()
		case l.c.w.Now()-sent > time.Second:
			l.fail(fabric.ErrTimeout)
		default:
			l.c.w.After(time.Millisecond+l.c.upTo(20*time.Millisecond), deliver)
			l.last = max(l.last, l.c.w.Now()+25*time.Millisecond)
		}
	}
	l.c.w.After(at-l.c.w.Now(), deliver)
}

func (l *memberLink) Receive() (m replica.Message, ok bool) {
	if l.Err() != nil || len(l.in) == 0 {
		return m, false
	}
	m, l.in = l.in[0], l.in[1:]
	return m, true
}

func (l *memberLink) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	l.next++
	_, err := l.ep.Post([]fabric.WR{{
		ID: l.index()<<32 | l.next, Op: fabric.Write, Flags: fabric.Signal, Local: local, LOff: off, LLen: n, Remote: key, ROff: at,
	}})
	return err
}

func (l *memberLink) Written() (n int) {
	n, l.done = l.done, 0
	return n
}

func (l *memberLink) Err() error {
	if l.err == nil && l.ep != nil {
		l.err = l.ep.Err()
	}
	return l.err
}

func (l *memberLink) Close() { l.fail(fabric.ErrClosed) }
