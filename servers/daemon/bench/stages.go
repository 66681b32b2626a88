package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// serveHydra is the main function of a node's process, which ends at SIGTERM. The node has one shard, two shards, or
// two shards of two stages each.
func serveHydra(kind, addr string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	memory, err := shm.Open()
	if err != nil {
		return err
	}
	defer memory.Close()
	end := func() error { return nil }
	if kind == "stages" {
		end, err = serveStages(ctx, memory, addr)
	} else {
		shards := 1
		if kind == "two" {
			shards = 2
		}
		var n *machine.Node
		if n, err = machine.Open(machine.Options{Shards: shards, Durability: shard.Memory, Listen: []machine.Listen{{Domain: memory, Addr: addr, Public: "shm:" + addr}}}); err == nil {
			end = n.Close
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("serving")
	<-ctx.Done()
	return end()
}

// The pipelined execution to which the paper compares its own. Each shard has one thread that receives messages and
// sends answers, and another thread that serves. Between the two threads is a queue in each direction.

// stageSpin is how long a thread that finds nothing to do keeps polling, as the threads of package machine do.
const stageSpin = 20 * time.Microsecond

// A stage is a connection that two threads share: the receiving thread uses Conn, the serving thread uses the stage
// as a wire.Line.
type stage struct {
	wire.Conn              // used by the receiving thread
	served    *stagedShard // the shard that the line belongs to
	client    shard.Greeting

	mu      sync.Mutex // guards the fields up to the next empty line
	in, out []carried
	done    error

	// The serving thread's fields.
	taken  []carried // messages from in
	next   int
	queued bool // out has messages that were added since the last Flush

	sent []carried // the receiving thread's: messages from out for which the connection had no room yet
}

// carried is a message on its way between the threads, with a body of its own.
type carried struct {
	h    wire.Header
	body []byte
}

func (s *stage) Begin(n int) ([]byte, error) { return make([]byte, 0, n), nil }

func (s *stage) End(h *wire.Header, body []byte) {
	s.mu.Lock()
	s.out = append(s.out, carried{*h, body})
	s.mu.Unlock()
	s.queued = true
}

func (s *stage) Flush() {
	if s.queued {
		s.queued = false
		s.served.group.Wake()
	}
}

func (s *stage) Receive() (wire.Message, bool) {
	if s.next == len(s.taken) {
		s.mu.Lock()
		s.taken, s.in = s.in, s.taken[:0]
		s.mu.Unlock()
		s.next = 0
		if len(s.taken) == 0 {
			return wire.Message{}, false
		}
	}
	m := &s.taken[s.next]
	s.next++
	return wire.Message{Header: m.h, Body: m.body}, true
}

func (s *stage) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

func (s *stage) Close() error { return nil } // the receiving thread closes the connection

// A stagedShard is a shard and its two threads.
type stagedShard struct {
	shard  *shard.Shard
	group  *wire.Group
	read   time.Time
	attach chan *stage // new connections, for the serving thread
	accept chan *stage // new connections, for the receiving thread
	wake   chan struct{}
	ended  sync.WaitGroup
}

func serveStages(ctx context.Context, memory fabric.Domain, addr string) (end func() error, err error) {
	const shards = 2
	seed := rand.Uint64()
	m := protocol.Map{Version: 1, Seed: seed}
	for i := range uint32(shards) {
		m.Shards = append(m.Shards, protocol.Place{Shard: i, Addrs: []string{"shm:" + addr}})
	}
	body := m.AppendBody(nil)
	l, err := memory.Listen(addr)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	runtime.GOMAXPROCS(runtime.NumCPU() + 2*shards)
	list := make([]*stagedShard, shards)
	for i := range list {
		x := &stagedShard{attach: make(chan *stage, 64), accept: make(chan *stage, 64), wake: make(chan struct{}, 1)}
		if x.group, err = wire.NewGroup(memory, 1<<16); err != nil {
			return nil, err
		}
		x.shard, err = shard.New(shard.Options{
			Shard: uint32(i), Term: 1, Seed: seed, Durability: shard.Memory, Alloc: memory.Alloc, Arena: arena.Options{},
			Clock: func() (int64, uint64) {
				x.read = time.Now()
				return int64(x.read.Sub(began)), uint64(x.read.UnixMilli())
			},
			Map: func() (uint32, []byte) { return m.Version, body },
		})
		if err != nil {
			return nil, err
		}
		list[i] = x
		x.ended.Go(func() { x.receive(ctx) })
		x.ended.Go(func() { x.serve(ctx) })
	}
	go wire.AcceptAll(ctx, l, func(in fabric.Incoming) error { return greet(list, in) })
	return func() error {
		for _, x := range list {
			x.ended.Wait()
			x.shard.Close()
			x.group.Close()
		}
		return l.Close()
	}, nil
}

// greet makes the connection that a client requests and gives it to both threads of a shard.
func greet(list []*stagedShard, in fabric.Incoming) error {
	rest, err := wire.Hello(in)
	var h protocol.Hello
	if err == nil {
		err = h.Parse(rest)
	}
	if err != nil {
		return err
	}
	w := protocol.Welcome{Shard: h.Shard, MapVersion: 1, Term: 1}
	if h.Shard == protocol.AnyShard {
		w.Shard = 0
	}
	x := list[int(w.Shard)%len(list)]
	c, err := x.group.Accept(in, w.Append(nil))
	if err != nil {
		return nil // Accept has refused it
	}
	s := &stage{Conn: c, served: x, client: shard.Greeting{Client: h.Client, Next: h.Next}}
	x.accept <- s
	x.group.Wake()
	return nil
}

// receive is the thread that receives messages and sends answers.
func (x *stagedShard) receive(ctx context.Context) {
	runtime.LockOSThread()
	var conns []*stage
	idle := time.Now()
	for looked := idle; ctx.Err() == nil; {
		worked := x.group.Step()
		select {
		case s := <-x.accept:
			x.group.Add(s.Conn)
			conns = append(conns, s)
			x.attach <- s
			x.wakeServer()
		default:
		}
		for _, s := range conns {
			worked = s.move() || worked
		}
		x.group.Flush()
		now := time.Now()
		if now.Sub(looked) > 50*time.Millisecond {
			looked = now
			x.group.Check(now)
		}
		switch {
		case worked:
			idle = now
		case now.Sub(idle) > stageSpin && x.group.Arm() && len(x.accept) == 0:
			waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			x.group.Wait(waiting, 0)
			cancel()
			idle = time.Now()
		}
	}
}

// move passes the connection's messages to the serving thread, and that thread's answers to the connection.
func (s *stage) move() (worked bool) {
	for range 16 {
		m, ok := s.Conn.Receive()
		if !ok {
			break
		}
		c := carried{m.Header, append([]byte(nil), m.Body...)}
		s.mu.Lock()
		s.in = append(s.in, c)
		s.mu.Unlock()
		worked = true
	}
	if worked {
		s.served.wakeServer()
	}
	s.mu.Lock()
	s.sent, s.out = append(s.sent, s.out...), s.out[:0]
	if s.done == nil {
		s.done = s.Conn.Err()
	}
	s.mu.Unlock()
	n := 0
	for ; n < len(s.sent); n++ {
		a := &s.sent[n]
		b, err := s.Conn.Begin(len(a.body))
		if err != nil {
			break
		}
		s.Conn.End(&a.h, append(b, a.body...))
		worked = true
	}
	s.sent = append(s.sent[:0], s.sent[n:]...)
	return worked
}

func (x *stagedShard) wakeServer() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// serve is the thread that executes requests on the shard.
func (x *stagedShard) serve(ctx context.Context) {
	runtime.LockOSThread()
	idle := time.Now()
	for ctx.Err() == nil {
		select {
		case s := <-x.attach:
			x.shard.Attach(s, s.client)
		default:
		}
		if x.shard.Sweep() {
			idle = x.read
			continue
		}
		if x.read.Sub(idle) < stageSpin {
			continue
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		idle = time.Now()
	}
}
