// Package fabrictest is the conformance suite of the fabric's providers; it defines what a fabric is. It runs with
// both ends in one process, and, if the provider can, with the owner of the memory in a separate process, which the
// suite stops and kills.
package fabrictest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// A Provider describes a provider to the suite.
type Provider struct {
	// Open returns a new domain, as a new process would have. The suite closes it.
	Open func() (fabric.Domain, error)
	// Addr returns an unused address to listen at. dir is a directory of the test.
	Addr func(dir string) string
	// Processes is set if domains of two processes can reach each other.
	Processes bool
	// RealTime is set if the provider's time is that of the test. A simulated World's time jumps over idle periods,
	// so timeouts come early.
	RealTime bool
}

var operations = flag.Int("fabric.operations", 100_000, "how many random operations are compared with a model; a tenth of that in short mode")

// Operations returns how many random operations a test should compare with a Model.
func Operations() int {
	if testing.Short() {
		return *operations / 10
	}
	return *operations
}

const childVariable = "FABRICTEST_CHILD"

// Main serves as TestMain of a provider's tests: in an owner's process that the suite has started it serves requests,
// otherwise it runs the tests.
func Main(m *testing.M, p Provider) {
	if addr := os.Getenv(childVariable); addr != "" {
		if err := serve(p, addr, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "owner:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// Run runs the suite.
func Run(t *testing.T, p Provider) {
	t.Run("OneProcess", func(t *testing.T) { (&suite{p: p}).run(t) })
	t.Run("TwoProcesses", func(t *testing.T) {
		if !p.Processes {
			t.Skip("the provider is of one process")
		}
		(&suite{p: p, apart: true}).run(t)
	})
}

type suite struct {
	p     Provider
	apart bool // the owner is a separate process
}

func (s *suite) run(t *testing.T) {
	tests := []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"Hello", testHello},
		{"ReadWrite", testReadWrite},
		{"Alignment", testAlignment},
		{"Bounds", testBounds},
		{"Keys", testKeys},
		{"Requests", testRequests},
		{"Tearing", testTearing},
		{"FenceUnderFire", testFenceUnderFire},
		{"CloseRegion", testCloseRegion},
		{"ReadNow", testReadNow},
		{"ReadNowUnderFire", testReadNowUnderFire},
		{"Depth", testDepth},
		{"Unsignalled", testUnsignalled},
		{"QueueBound", testQueueBound},
		{"Flush", testFlush},
		{"Send", testSend},
		{"SendTooLarge", testSendTooLarge},
		{"SendWithoutRecv", testSendWithoutRecv},
		{"Order", testOrder},
		{"Inline", testInline},
		{"Notify", testNotify},
		{"Wait", testWait},
		{"CloseEndpoint", testCloseEndpoint},
		{"CloseDomain", testCloseDomain},
		{"Model", testModel},
		{"Kill", testKill},
		{"Stopped", testStopped},
		{"OneSided", testOneSided},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// patience is the longest wait for something that has no time limit of its own, far longer than a busy machine needs.
const patience = 20 * time.Second

// A side is the initiator: a domain with a connection to the owner, a queue and local memory.
type side struct {
	t     *testing.T
	d     fabric.Domain
	q     fabric.Queue
	e     fabric.Endpoint
	local fabric.Region
	peer  int // the owner's number of the connection
	last  uint64
	extra []fabric.WC // completions polled while waiting for something else
}

const localSize = 1 << 20

// connect opens a domain that is connected to an owner.
func (s *suite) connect(t *testing.T, o owner, opt ...func(*fabric.EndpointOptions)) *side {
	t.Helper()
	d, err := s.p.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return s.connectFrom(t, d, o, opt...)
}

func (s *suite) connectFrom(t *testing.T, d fabric.Domain, o owner, opt ...func(*fabric.EndpointOptions)) *side {
	t.Helper()
	c := &side{t: t, d: d}
	var err error
	c.q, err = d.NewQueue(1024)
	require.NoError(t, err)
	c.local, err = d.Alloc(localSize, 0)
	require.NoError(t, err)
	options := fabric.EndpointOptions{Send: c.q, Recv: c.q}
	for _, f := range opt {
		f(&options)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var answer []byte
	c.e, answer, err = d.Dial(ctx, o.addr(), []byte("hello"), options)
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(answer), "connection %d", &c.peer)
	require.NoError(t, err, "answer %q", answer)
	return c
}

// post posts work requests, all of which are taken. It returns the ID of the first; the others' follow it.
func (c *side) post(w ...fabric.WR) uint64 {
	c.t.Helper()
	first := c.last + 1
	for i := range w {
		c.last++
		w[i].ID = c.last
	}
	n, err := c.e.Post(w)
	require.NoError(c.t, err)
	require.Equal(c.t, len(w), n)
	return first
}

// completion returns the next completion, nil if there is none within limit.
func (c *side) completion(limit time.Duration) *fabric.WC {
	if len(c.extra) > 0 {
		wc := c.extra[0]
		c.extra = c.extra[1:]
		return &wc
	}
	return c.next(limit)
}

func (c *side) next(limit time.Duration) *fabric.WC {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		var wc [1]fabric.WC
		if c.q.Poll(wc[:]) == 1 {
			return &wc[0]
		}
		if err := c.q.Wait(ctx, 100); err != nil {
			return nil
		}
	}
}

// do carries out one operation and returns its completion.
func (c *side) do(w fabric.WR) fabric.WC {
	c.t.Helper()
	w.Flags |= fabric.Signal
	id := c.post(w)
	wc := c.completion(patience)
	require.NotNil(c.t, wc, "no completion of %+v", w)
	require.Equal(c.t, id, wc.ID)
	require.Equal(c.t, w.Op, wc.Op)
	return *wc
}

// read and write return requests for n bytes at off of a region, from and to the same offset of local memory.
func (c *side) read(k fabric.Key, off, n int) fabric.WR { return c.wr(fabric.Read, k, off, n) }

func (c *side) write(k fabric.Key, off, n int) fabric.WR { return c.wr(fabric.Write, k, off, n) }

func (c *side) wr(op fabric.Op, k fabric.Key, off, n int) fabric.WR {
	at := uint64(0)
	if 0 <= off && off+n <= localSize {
		at = uint64(off)
	}
	return fabric.WR{Op: op, Local: c.local, LOff: at, LLen: uint64(n), Remote: k, ROff: uint64(off)}
}

// ended waits for the end of the endpoint and returns the reason.
func (c *side) ended() error {
	c.t.Helper()
	// Some providers make progress only in Poll and Wait.
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-c.e.Done():
			return c.e.Err()
		default:
		}
		if wc := c.next(time.Millisecond); wc != nil {
			c.extra = append(c.extra, *wc)
		}
	}
	require.Fail(c.t, "the endpoint has not ended")
	return nil
}
