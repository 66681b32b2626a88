package replicatest

import (
	"slices"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/sim"
	"flashdbm/servers/replica"
)

// A Port has the ends of the links of one life of a member.
type Port struct {
	World *sim.World
	Node  *sim.Node
	Queue *sim.Queue // of completions
	Wake  func()
	Lives func() bool // the life goes on

	links []*Link // links that Write, by the upper half of the IDs of their Writes
}

// A Link is one end of a link between two members. Messages travel outside the endpoint, so they may overtake Writes.
type Link struct {
	port  *Port // of this end
	other *Link
	ep    fabric.Endpoint
	in    []replica.Message
	done  int
	next  uint64 // ID of the next Write
	last  time.Duration
	err   error
}

var _ replica.Link = (*Link)(nil)

// Pair makes both ends of a link between two members.
func Pair(a, b *Port) (near, far *Link) {
	near, far = &Link{port: a}, &Link{port: b}
	near.other, far.other = far, near
	return near, far
}

// Accepted gives this end its endpoint. Dialled does the same for the primary's end, which Writes.
func (l *Link) Accepted(e fabric.Endpoint) { l.ep = e }
func (l *Link) Dialled(e fabric.Endpoint) {
	l.ep = e
	l.port.links = append(l.port.links, l)
}

// Complete handles completions of Writes.
func (p *Port) Complete() {
	var wcs [16]fabric.WC
	for {
		n := p.Queue.Poll(wcs[:])
		for _, wc := range wcs[:n] {
			i := int(wc.ID >> 32)
			if i >= len(p.links) {
				continue
			}
			l := p.links[i]
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

func (l *Link) fail(err error) {
	if l.err == nil {
		l.err = err
		if l.ep != nil {
			l.ep.Close()
		}
	}
}

// Send implements replica.Link.
func (l *Link) Send(msg *replica.Message) {
	var copied replica.Message
	if err := copied.Parse(msg.Append(make([]byte, 0, msg.Size()))); err != nil {
		panic(err)
	}
	w := l.port.World
	at := max(l.last, w.Now()+w.Delay())
	l.last = at
	sent := w.Now()
	var deliver func()
	deliver = func() {
		o := l.other
		switch {
		case o.err != nil || !o.port.Lives():
		case w.Reaches(l.port.Node, o.port.Node):
			o.in = append(o.in, copied)
			o.port.Wake()
		case w.Now()-sent > time.Second:
			l.fail(fabric.ErrTimeout)
		default:
			w.After(time.Millisecond+time.Duration(w.Rand().IntN(int(20*time.Millisecond))), deliver)
			l.last = max(l.last, w.Now()+25*time.Millisecond)
		}
	}
	w.After(at-w.Now(), deliver)
}

// Receive implements replica.Link.
func (l *Link) Receive() (m replica.Message, ok bool) {
	if l.Err() != nil || len(l.in) == 0 {
		return m, false
	}
	m, l.in = l.in[0], l.in[1:]
	return m, true
}

// Write implements replica.Link.
func (l *Link) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	l.next++
	_, err := l.ep.Post([]fabric.WR{{
		ID: uint64(slices.Index(l.port.links, l))<<32 | l.next, Op: fabric.Write, Flags: fabric.Signal, Local: local, LOff: off, LLen: n, Remote: key, ROff: at,
	}})
	return err
}

// Written implements replica.Link.
func (l *Link) Written() (n int) {
	n, l.done = l.done, 0
	return n
}

// Err implements replica.Link.
func (l *Link) Err() error {
	if l.err == nil && l.ep != nil {
		l.err = l.ep.Err()
	}
	return l.err
}

// Close implements replica.Link.
func (l *Link) Close() { l.fail(fabric.ErrClosed) }
