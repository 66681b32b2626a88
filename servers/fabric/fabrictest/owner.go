package fabrictest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/words"
)

// A request is a command of the test to the owner of the memory.
type request struct {
	Do     string
	Region int
	Conn   int
	Off, N int
	Access fabric.Access
	Bytes  []byte
	Key    fabric.Key
	Limit  time.Duration
}

// A response is the owner's answer to a request.
type response struct {
	Region int
	Key    fabric.Key
	Bytes  []byte
	Got    []completion
	N      uint64
	CPU    time.Duration // of the owner's process
	Err    string
}

// A completion is a fabric.WC, with the bytes of a Recv.
type completion struct {
	ID    uint64
	Op    fabric.Op
	Len   uint32
	Err   string
	Bytes []byte
}

// An owner is the other end: a domain that listens and carries out requests, in this process or in a separate one.
type owner interface {
	addr() string
	call(t *testing.T, r request) response
	signal(t *testing.T, what string) // "kill", "stop" or "continue", as signals to a process
}

// owner starts an owner, which ends with the test.
func (s *suite) owner(t *testing.T) owner {
	t.Helper()
	addr := s.p.Addr(t.TempDir())
	if s.apart {
		return startProcess(t, addr)
	}
	h, err := newHost(s.p, addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.close()) })
	return localOwner{h}
}

type localOwner struct{ h *host }

func (o localOwner) addr() string { return o.h.l.Addr() }

func (o localOwner) call(t *testing.T, r request) response {
	t.Helper()
	resp, err := o.h.do(r)
	require.NoError(t, err, r.Do)
	return resp
}

func (o localOwner) signal(t *testing.T, what string) {
	require.Equal(t, "kill", what)
	require.NoError(t, o.h.close())
}

// serve runs in the owner's process: it reads requests and writes responses, one JSON object a line, until its input
// ends.
func serve(p Provider, addr string, in io.Reader, out io.Writer) error {
	h, err := newHost(p, addr)
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := fmt.Fprintln(out, h.l.Addr()); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		resp, err := h.do(r)
		if err != nil {
			resp.Err = err.Error()
		}
		b, err := json.Marshal(resp)
		if err != nil {
			return err
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}

// A host is the owner's domain with its connections and regions.
type host struct {
	d fabric.Domain
	q fabric.Queue
	l fabric.Listener

	mu      sync.Mutex // guards conns
	conns   []fabric.Endpoint
	regions []fabric.Region
	room    fabric.Region // memory of Recvs: a slot of recvRoom bytes for each
	posted  uint64        // the number of Recvs so far
	ends    []func() uint64
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

const (
	recvRoom  = 64 << 10 // MaxSend of all providers
	recvSlots = 128
)

func newHost(p Provider, addr string) (*host, error) {
	d, err := p.Open()
	if err != nil {
		return nil, err
	}
	h := &host{d: d}
	if h.q, err = d.NewQueue(4096); err != nil {
		return nil, err
	}
	if h.room, err = d.Alloc(recvRoom*recvSlots, 0); err != nil {
		return nil, err
	}
	if h.l, err = d.Listen(addr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	h.done.Go(func() { h.accept(ctx) })
	return h, nil
}

func (h *host) accept(ctx context.Context) {
	for {
		in, err := h.l.Accept(ctx)
		if err != nil {
			return
		}
		if string(in.Hello()) == "reject" {
			in.Reject("as it has asked for")
			continue
		}
		h.mu.Lock()
		n := len(h.conns)
		h.conns = append(h.conns, nil)
		h.mu.Unlock()
		e, err := in.Accept(fabric.EndpointOptions{Send: h.q, Recv: h.q}, fmt.Appendf(nil, "connection %d to %s", n, in.Hello()))
		if err == nil {
			h.mu.Lock()
			h.conns[n] = e
			h.mu.Unlock()
		}
	}
}

func (h *host) close() error {
	h.cancel()
	h.still()
	err := h.d.Close()
	h.done.Wait()
	return err
}

// still ends the background functions and returns the result of the last one.
func (h *host) still() (n uint64) {
	for _, end := range h.ends {
		n = end()
	}
	h.ends = nil
	return n
}

// run runs f in the background until still, which returns f's result.
func (h *host) run(f func(stop *atomic.Bool) uint64) {
	var stop atomic.Bool
	result := make(chan uint64, 1)
	go func() { result <- f(&stop) }()
	h.ends = append(h.ends, func() uint64 {
		stop.Store(true)
		h.q.Wake()
		return <-result
	})
}

func (h *host) conn(n int) (fabric.Endpoint, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		if n < len(h.conns) && h.conns[n] != nil {
			defer h.mu.Unlock()
			return h.conns[n], nil
		}
		h.mu.Unlock()
	}
	return nil, fmt.Errorf("no connection %d", n)
}

// do carries out a request.
func (h *host) do(r request) (resp response, err error) {
	var region fabric.Region
	if r.Region < len(h.regions) {
		region = h.regions[r.Region]
	}
	switch r.Do {
	case "alloc":
		if region, err = h.d.Alloc(r.N, r.Access); err == nil {
			h.regions = append(h.regions, region)
			resp.Region, resp.Key = len(h.regions)-1, region.Key()
		}
	case "load":
		resp.Bytes = make([]byte, r.N)
		words.Read(resp.Bytes, region.Bytes()[r.Off:r.Off+r.N])
	case "store":
		words.Write(region.Bytes()[r.Off:], r.Bytes)
	case "fence": // returns the content at that moment, and then overwrites it with a secret
		mem := region.Bytes()
		if err = region.Fence(); err == nil {
			resp.Bytes = snapshot(mem)
			for at := 0; at < len(mem); at += words.Size {
				words.Store(mem, at, secret)
			}
		}
	case "close region":
		err = region.Close()
	case "churn":
		h.run(func(stop *atomic.Bool) uint64 { return churn(region.Bytes(), stop) })
	case "watch":
		h.run(func(stop *atomic.Bool) uint64 { return watch(region.Bytes(), stop) })
	case "sink":
		h.run(func(stop *atomic.Bool) uint64 { return h.sink(r.Conn, stop) })
	case "pong":
		h.run(func(stop *atomic.Bool) uint64 { return h.pong(r, region, stop) })
	case "still":
		resp.N = h.still()
	case "cpu":
		resp.CPU, err = processTime()
	default:
		return h.doConn(r)
	}
	return resp, err
}

// doConn carries out a request that concerns a connection.
func (h *host) doConn(r request) (resp response, err error) {
	if r.Do == "poll" {
		return h.poll(r.N, r.Limit), nil
	}
	e, err := h.conn(r.Conn)
	if err != nil {
		return resp, err
	}
	switch r.Do {
	case "recv":
		for range r.N {
			if err = h.recv(e, r.Off); err != nil {
				break
			}
		}
	case "send":
		words.Write(h.room.Bytes()[:len(r.Bytes)], r.Bytes)
		_, err = e.Post([]fabric.WR{{Op: fabric.Send, Flags: fabric.Signal, Local: h.room, LLen: uint64(len(r.Bytes))}})
	case "notify":
		_, err = e.Post([]fabric.WR{{Op: fabric.Write, Flags: fabric.Signal | fabric.Notify}})
	case "ended":
		select {
		case <-e.Done():
			resp.Err = ""
			resp.Bytes = []byte(e.Err().Error())
		case <-time.After(r.Limit):
			err = errors.New("the owner's endpoint has not ended")
		}
	case "close conn":
		err = e.Close()
	default:
		err = fmt.Errorf("what is %q?", r.Do)
	}
	return resp, err
}

// recv posts a Recv with room for n bytes.
func (h *host) recv(e fabric.Endpoint, n int) error {
	slot := h.posted % recvSlots
	_, err := e.Post([]fabric.WR{{ID: h.posted, Op: fabric.Recv, Local: h.room, LOff: slot * recvRoom, LLen: uint64(n)}})
	if err == nil {
		h.posted++
	}
	return err
}

// poll waits for n completions.
func (h *host) poll(n int, limit time.Duration) (resp response) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for len(resp.Got) < n {
		var wc [1]fabric.WC
		if h.q.Poll(wc[:]) == 0 {
			if h.q.Wait(ctx, 100) != nil {
				break
			}
			continue
		}
		c := completion{ID: wc[0].ID, Op: wc[0].Op, Len: wc[0].Len}
		if wc[0].Err != nil {
			c.Err = wc[0].Err.Error()
		}
		if c.Op == fabric.Recv && c.Err == "" {
			slot := wc[0].ID % recvSlots * recvRoom
			c.Bytes = snapshot(h.room.Bytes()[slot : slot+uint64(c.Len)])
		}
		resp.Got = append(resp.Got, c)
	}
	return resp
}

// sink receives until it is stopped, and returns the hash of all bytes received, in order.
func (h *host) sink(conn int, stop *atomic.Bool) uint64 {
	e, err := h.conn(conn)
	if err != nil {
		return 0
	}
	for range recvSlots / 2 {
		h.recv(e, recvRoom)
	}
	sum := fnv.New64a()
	for {
		last := stop.Load() // completed Sends of the peer are in the queue by now
		got := h.poll(1, 10*time.Millisecond).Got
		for _, c := range got {
			sum.Write(c.Bytes)
			h.recv(e, recvRoom)
		}
		if last && len(got) == 0 {
			return sum.Sum64()
		}
	}
}

// pong waits for the peer's number in the first word of a region, writes the same number to the peer's memory and
// notifies the peer, until the number is lastNumber. N is how often it checks before it sleeps; with a negative N it
// neither sleeps nor notifies.
func (h *host) pong(r request, region fabric.Region, stop *atomic.Bool) uint64 {
	e, err := h.conn(r.Conn)
	if err != nil {
		return 0
	}
	local, err := h.d.Alloc(4096, 0)
	if err != nil {
		return 0
	}
	sleeps := func() bool { // limits the wait for the next number, not for all of them
		ctx, cancel := context.WithTimeout(context.Background(), r.Limit)
		defer cancel()
		return h.q.Wait(ctx, r.N) == nil
	}
	flags := fabric.Signal | fabric.Notify
	if r.N < 0 {
		flags = fabric.Signal
	}
	for answered := uint64(0); !stop.Load(); {
		n := words.Load(region.Bytes(), 0)
		if n == answered {
			if r.N >= 0 && !sleeps() {
				return answered
			}
			h.q.Poll(make([]fabric.WC, 1))
			continue
		}
		answered = n
		words.Store(local.Bytes(), 0, n)
		if _, err := e.Post([]fabric.WR{{Op: fabric.Write, Flags: flags, Local: local, LLen: 8, Remote: r.Key}}); err != nil {
			return answered
		}
		var wc [1]fabric.WC
		for h.q.Poll(wc[:]) == 0 && !stop.Load() {
		}
		if n == lastNumber {
			return n
		}
	}
	return 0
}

// lastNumber ends pong.
const lastNumber = 1 << 40

// secret is what the owner writes to a region after fencing it: a Read that returns it is an error.
const secret = 0xdeadbeefdeadbeef

func snapshot(mem []byte) []byte {
	b := make([]byte, len(mem))
	words.Read(b, mem)
	return b
}

// equalBytes returns a word of eight equal bytes.
func equalBytes(n uint64) uint64 { return n % 251 * 0x0101010101010101 }

// torn reports whether a word has eight bytes that are not all equal.
func torn(word uint64) bool { return word != word&0xff*0x0101010101010101 }

// churn writes words of equal bytes to all places until stop, and returns the number of rounds.
func churn(mem []byte, stop *atomic.Bool) (rounds uint64) {
	for ; !stop.Load(); rounds++ {
		for at := 0; at < len(mem); at += words.Size {
			words.Store(mem, at, equalBytes(rounds))
		}
	}
	return rounds
}

// watch counts torn words until stop.
func watch(mem []byte, stop *atomic.Bool) (count uint64) {
	for !stop.Load() {
		for at := 0; at < len(mem); at += words.Size {
			if torn(words.Load(mem, at)) {
				count++
			}
		}
	}
	return count
}
