package shard

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/fabric/words"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/replica"
	"flashdbm/servers/wire"
)

// A benchLink is a replica.Link whose Writes are copies, as over shared memory, where the initiator makes them.
type benchLink struct {
	rings map[uint64]fabric.Region
	other *benchLink
	in    []replica.Message
	done  int
	asks  *int
}

func (l *benchLink) Send(m *replica.Message) {
	if m.Kind == replica.KindAsk {
		*l.asks++
	}
	l.other.in = append(l.other.in, *m)
}
func (l *benchLink) Receive() (m replica.Message, ok bool) {
	if len(l.in) > 0 {
		m, l.in, ok = l.in[0], l.in[1:], true
	}
	return m, ok
}
func (l *benchLink) Write(local fabric.Region, off, n uint64, key fabric.Key, at uint64) error {
	words.Write(l.rings[key.ID].Bytes()[at:at+n], local.Bytes()[off:off+n])
	l.done++
	return nil
}
func (l *benchLink) Written() (n int) { n, l.done = l.done, 0; return n }
func (l *benchLink) Err() error       { return nil }
func (l *benchLink) Close()           {}

// benchMemory finds regions by their keys.
type benchMemory struct {
	d     fabric.Domain
	rings map[uint64]fabric.Region
}

func (m *benchMemory) Alloc(n int, a fabric.Access) (fabric.Region, error) {
	r, err := m.d.Alloc(n, a)
	if err == nil {
		m.rings[r.Key().ID] = r
	}
	return r, err
}

// BenchmarkReplicatedInsert measures the primary's time for an INSERT of 16 + 32 bytes with no, one and two
// secondaries: the time of its thread, with the copies to the rings. It also reports the time of a secondary's thread
// for an INSERT, and the time of the primary's thread for a GET of the item.
func BenchmarkReplicatedInsert(b *testing.B) {
	for _, mode := range []replica.Mode{replica.Relaxed, replica.Strict} {
		for replicas := range 3 {
			b.Run(fmt.Sprintf("%v/%d", mode, replicas), func(b *testing.B) { benchInserts(b, mode, replicas) })
		}
	}
}

func benchInserts(b *testing.B, mode replica.Mode, replicas int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const size, sweep = 4 << 20, 16
	m := &benchMemory{mem.NewNetwork().Open(), map[uint64]fabric.Region{}}
	defer m.d.Close()
	began := time.Now()
	clock := func() (int64, uint64) { return int64(time.Since(began)) + 1e10, uint64(time.Now().UnixMilli()) }
	member := func(name string) *Shard {
		log, err := replica.NewLog(m, size, 0, nil)
		require.NoError(b, err)
		s, err := New(Options{
			Seed: 5, Alloc: m.d.Alloc, Arena: arena.Options{}, Clock: clock,
			Membership: Membership{Log: log, Self: name, Mode: mode, RingSize: size, Memory: m},
		})
		require.NoError(b, err)
		return s
	}
	p := member("p")
	defer p.Close()
	rec := replica.Record{Revision: 1, Term: 1, Primary: "p", Set: []string{"p"}}
	followers := map[string]*Shard{}
	for i := range replicas {
		name := fmt.Sprint(i)
		followers[name] = member(name)
		defer followers[name].Close()
		rec.Set = append(rec.Set, name)
	}
	p.Learn(rec)
	asks, merging := 0, time.Duration(0)
	others := func() {
		if g := p.Reign(); g != nil {
			for name := g.Dial(); name != ""; name = g.Dial() {
				near, far := &benchLink{rings: m.rings, asks: &asks}, &benchLink{rings: m.rings, asks: &asks}
				near.other, far.other = far, near
				followers[name].Follower().Offered(far)
				g.Attach(name, near)
			}
		}
		from := threadTime()
		for _, f := range followers {
			f.Sweep()
		}
		merging += threadTime() - from
	}
	for p.Reign() == nil || !p.Reign().Serving() {
		p.Sweep()
		others()
	}
	d := &desk{s: p}
	p.Attach(d, Greeting{Client: 1, Next: 1})
	var spent time.Duration
	asks, merging = 0, 0
	q := protocol.Request{Op: protocol.OpInsert, Key: make([]byte, 16), Value: make([]byte, 32)}
	n, answered := 0, 0
	for answered < b.N {
		for range sweep {
			n++
			binary.LittleEndian.PutUint64(q.Key, uint64(n))
			q.Number, q.Oldest = uint64(n), uint64(max(1, n-60))
			d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(q.Op), Request: uint64(n)}, Body: q.AppendBody(nil)})
		}
		for answered < n {
			from := threadTime()
			p.Sweep()
			spent += threadTime() - from
			answered += len(d.out)
			d.out = d.out[:0]
			others()
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/insert")
	b.ReportMetric(float64(asks)/float64(n), "asks/insert")
	if replicas > 0 {
		b.ReportMetric(float64(merging.Nanoseconds())/float64(n*replicas), "ns/merge")
	}
	spent = 0
	for got := 0; got < n; {
		for range sweep {
			got++
			binary.LittleEndian.PutUint64(q.Key, uint64(got*7919%n+1))
			g := protocol.Request{Op: protocol.OpGet, Key: q.Key}
			d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(g.Op), Request: uint64(got)}, Body: g.AppendBody(nil)})
		}
		from := threadTime()
		p.Sweep()
		spent += threadTime() - from
		for _, m := range d.out {
			require.Equal(b, protocol.StatusOK, protocol.Status(m.Status))
		}
		d.out = d.out[:0]
		others()
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/get")
	b.ReportMetric(0, "ns/op")
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
