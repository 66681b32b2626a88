package resp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/shard"
)

// looping returns how many connections of the server are in its loop.
func (s *Server) looping() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if _, is := c.net.(*raw); is {
			n++
		}
	}
	return n
}

func connect(t testing.TB, addr string) (net.Conn, *bufio.Reader) {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	return nc, bufio.NewReader(nc)
}

// ask sends a text and compares the answer with want.
func ask(t testing.TB, nc net.Conn, in io.Reader, send, want string) {
	t.Helper()
	_, err := io.WriteString(nc, send)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(in, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestLoop(t *testing.T) {
	client := newLocal(t, machine.Options{Durability: shard.Memory})
	for name, test := range map[string]func(*testing.T, *hydra.Client){
		"Keeps": testLoopKeeps, "Order": testLoopOrder, "SlowClient": testLoopSlowClient, "Wakes": testLoopWakes, "Ends": testLoopEnds, "Leaves": testLoopLeaves,
		"LeavesWhole": testLoopLeavesWhole, "WaitsForNothing": testLoopWaitsForNothing, "LeavesEarly": testLoopLeavesEarly, "CloseIsHeard": testLoopCloseIsHeard,
		"NoDescriptors": testLoopNoDescriptors, "Talks": testLoopTalks, "MovesWhileClosing": testLoopMovesWhileClosing,
	} {
		t.Run(name, func(t *testing.T) { test(t, client) })
	}
}

// testLoopKeeps: a connection stays in the loop as long as it sends only plain commands.
func testLoopKeeps(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{})
	nc, in := connect(t, addr)
	ask(t, nc, in, "CLIENT SETINFO LIB-NAME x\r\nSET a 1 EX 100\r\nGET a\r\nINCR a\r\nINCR a\r\nPING\r\nSET a 1 EX x\r\nCONFIG GET save\r\n",
		"+OK\r\n+OK\r\n$1\r\n1\r\n:2\r\n:3\r\n+PONG\r\n-ERR value is not an integer or out of range\r\n*2\r\n$4\r\nsave\r\n$0\r\n\r\n")
	require.Equal(t, 1, s.looping())
	for name, other := range map[string][2]string{
		"a command":          {"APPEND a x\r\n", ":2\r\n"},
		"SET that reads":     {"SET none 2 XX GET\r\n", "$-1\r\n"},
		"a long argument":    {"SET c " + strings.Repeat("x", plainArg+1) + "\r\n", "+OK\r\n"},
		"an unknown command": {"NO\r\n", "-ERR unknown command 'NO': flashdbmd serves strings and keys, see COMMAND LIST\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.looping()
			nc, in := connect(t, addr)
			ask(t, nc, in, "PING\r\n", "+PONG\r\n")
			require.Equal(t, before+1, s.looping())
			ask(t, nc, in, other[0]+"PING\r\n", other[1]+"+PONG\r\n")
			require.Equal(t, before, s.looping())
			ask(t, nc, in, "SET d 3\r\nGET d\r\n", "+OK\r\n$1\r\n3\r\n")
		})
	}
}

// testLoopOrder sends pipelines in random pieces. The answers are those of the commands executed one after another,
// wherever a batch ends and wherever the connection leaves the loop.
func testLoopOrder(t *testing.T, client *hydra.Client) {
	_, addr := serve(t, client, Config{})
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		nc, in := connect(t, addr)
		keys := map[string]string{}
		numbers := map[string]int{}
		var send, want bytes.Buffer
		for range 400 {
			k := fmt.Sprintf("%d:%d", seed, r.IntN(1+r.IntN(300)))
			switch p := r.IntN(1000); {
			case p < 400:
				v := strings.Repeat(fmt.Sprint(p), 1+r.IntN(300))
				fmt.Fprintf(&send, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(k), k, len(v), v)
				want.WriteString("+OK\r\n")
				keys[k] = v
			case p < 800:
				fmt.Fprintf(&send, "GET %s\r\n", k)
				if v, ok := keys[k]; ok {
					fmt.Fprintf(&want, "$%d\r\n%s\r\n", len(v), v)
				} else {
					want.WriteString("$-1\r\n")
				}
			case p < 900:
				numbers[k]++
				fmt.Fprintf(&send, "INCR n%s\r\n", k)
				fmt.Fprintf(&want, ":%d\r\n", numbers[k])
			case p < 950:
				send.WriteString("ECHO x\r\n")
				want.WriteString("$1\r\nx\r\n")
			case p < 998:
				fmt.Fprintf(&send, "SET %s x EX 0\r\nPING\r\n", k)
				want.WriteString("-ERR invalid expire time in 'set' command\r\n+PONG\r\n")
			default:
				fmt.Fprintf(&send, "APPEND %s y\r\n", k)
				keys[k] += "y"
				fmt.Fprintf(&want, ":%d\r\n", len(keys[k]))
			}
		}
		go func() {
			for b := send.Bytes(); len(b) > 0; {
				n := min(len(b), 1+r.IntN(1+r.IntN(20_000)))
				if _, err := nc.Write(b[:n]); err != nil {
					return
				}
				b = b[n:]
			}
		}()
		got := make([]byte, want.Len())
		_, err := io.ReadFull(in, got)
		require.NoError(t, err, "seed %d", seed)
		require.True(t, bytes.Equal(want.Bytes(), got), "seed %d", seed)
		nc.Close()
	}
}

// testLoopSlowClient: a client that requests much and does not read delays no other client, and gets all of it in the
// end.
func testLoopSlowClient(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{})
	value := strings.Repeat("v", 30_000)
	for name, command := range map[string]string{"of the store": "GET long\r\n", "of the loop": "ECHO " + value + "\r\n"} {
		t.Run(name, func(t *testing.T) { testSlowClient(t, s, addr, value, command) })
	}
}

func testSlowClient(t *testing.T, s *Server, addr, value, command string) {
	slow, slowIn := connect(t, addr)
	ask(t, slow, slowIn, "SET long "+value+"\r\n", "+OK\r\n")
	const gets = 1000 // more than the buffers of both sockets hold
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(slow, strings.Repeat(command, gets))
		sent <- err
	}()
	nc, in := connect(t, addr)
	for i := range 200 {
		ask(t, nc, in, fmt.Sprintf("SET short %d\r\nGET short\r\n", i), fmt.Sprintf("+OK\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	require.Eventually(t, func() bool { return s.looping() == 1 }, 10*time.Second, time.Millisecond,
		"a connection whose client does not read leaves the loop")
	want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	for range gets {
		got := make([]byte, len(want))
		_, err := io.ReadFull(slowIn, got)
		require.NoError(t, err)
		require.True(t, want == string(got))
	}
	require.NoError(t, <-sent)
}

// testLoopLeavesWhole: a connection that leaves the loop keeps its answers, and the command that waits for them.
func testLoopLeavesWhole(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{})
	nc, in := connect(t, addr)
	value := strings.Repeat("w", 30_000)
	ask(t, nc, in, "SET whole "+value+"\r\n", "+OK\r\n")
	require.Equal(t, 1, s.looping())
	got := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	ask(t, nc, in, strings.Repeat("GET whole\r\n", 3)+"SET whole x EX 100\r\nGET whole\r\n", got+got+got+"+OK\r\n$1\r\nx\r\n")
	require.Zero(t, s.looping())
}

// testLoopLeavesEarly: the loop does not collect long commands in growing buffers, and builds no long lists.
func testLoopLeavesEarly(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{})
	value := strings.Repeat("x", plainArg+1)
	for name, parts := range map[string][3]string{
		"a long argument":       {fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n", len(value)), value + "\r\nPING\r\n", "+OK\r\n+PONG\r\n"},
		"one behind a batch":    {fmt.Sprintf("SET a 1\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n", len(value)), value + "\r\nSTRLEN a\r\n", fmt.Sprintf("+OK\r\n+OK\r\n:%d\r\n", len(value))},
		"many arguments":        {fmt.Sprintf("*%d\r\n", plainArgs+1), strings.Repeat("$6\r\nEXISTS\r\n", plainArgs+1), ":0\r\n"},
		"what is too long":      {fmt.Sprintf("*2\r\n$3\r\nGET\r\n$%d\r\n", maxDropped), "", ""},
		"a list of connections": {"CLIENT LIST\r\n", "", "$"},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.looping()
			nc, in := connect(t, addr)
			ask(t, nc, in, "PING\r\n", "+PONG\r\n")
			require.Equal(t, before+1, s.looping())
			ask(t, nc, in, parts[0], "")
			require.Eventually(t, func() bool { return s.looping() == before }, 10*time.Second, time.Millisecond)
			ask(t, nc, in, parts[1], parts[2])
		})
	}
}

// testLoopTalks: what the loop answers by itself, and how connections end in it.
func testLoopTalks(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{Password: "secret", MaxBuffers: 1})
	const many = 1000
	hello := func(id string) string {
		return fmt.Sprintf("*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n%s\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n%s", redisVersion, id) +
			"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
	}
	request := "*3\r\n$3\r\nSET\r\n$4\r\ntalk\r\n$30000\r\n" + strings.Repeat("x", inputSize+100)
	for _, x := range []struct {
		name, send string
		want       func(id string) string
		ends       bool
	}{
		{"QUIT behind a batch", "SET talk 1\r\nQUIT\r\nSET talk 2\r\n", func(string) string { return "+OK\r\n+OK\r\n" }, true},
		{"no words", "\r\n*0\r\n \r\nGET talk\r\n\r\nPING\r\n", func(string) string { return "$1\r\n1\r\n+PONG\r\n" }, false},
		{"a wrong length behind a batch", "SET talk 3\r\n*1\r\n$x\r\nPING\r\n", func(string) string { return "+OK\r\n-ERR Protocol error: invalid bulk length\r\n" }, true},
		{"no memory for a request", "GET talk\r\n" + request, func(string) string { return "$1\r\n3\r\n-ERR " + errBuffers.Error() + "\r\n" }, true},
		{"many answers to few bytes", strings.Repeat("HELLO\r\n", many), func(id string) string { return strings.Repeat(hello(id), many) }, false},
		{"RESP3", "HELLO 3 SETNAME x\r\nGET no-talk\r\nGETDEL no-talk\r\n", func(id string) string {
			return strings.NewReplacer("*14", "%7", ":2", ":3").Replace(hello(id)) + "_\r\n_\r\n"
		}, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			nc, in := connect(t, addr)
			ask(t, nc, in, "AUTH secret\r\nCLIENT ID\r\n", "+OK\r\n:")
			id, err := in.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, 1, s.looping())
			ask(t, nc, in, x.send, x.want(":"+id))
			if !x.ends {
				require.NoError(t, nc.(*net.TCPConn).CloseWrite())
			}
			rest, _ := io.ReadAll(in)
			require.Empty(t, rest)
			require.Eventually(t, func() bool { return s.Connections() == 0 }, time.Minute, time.Millisecond)
		})
	}
}

// testLoopMovesWhileClosing: the server begins to close when a connection has left the loop, and is not yet one that
// Shutdown and Close can end.
func testLoopMovesWhileClosing(t *testing.T, client *hydra.Client) {
	for name, begin := range map[string]func(*Server){"Shutdown": func(*Server) {}, "Close": func(s *Server) { s.cancel() }} {
		t.Run(name, func(t *testing.T) {
			s, addr := serve(t, client, Config{})
			nc, in := connect(t, addr)
			ask(t, nc, in, "SET moves 1\r\n", "+OK\r\n")
			s.mu.Lock()
			var r *raw
			for c := range s.conns {
				r = c.lp.raw
			}
			_, err := io.WriteString(nc, "APPEND moves 2\r\n")
			moving := assert.Eventually(t, func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.fd < 0
			}, time.Minute, time.Millisecond)
			s.closing = true
			begin(s)
			s.mu.Unlock()
			require.NoError(t, err)
			require.True(t, moving)
			require.Eventually(t, func() bool { return s.Connections() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

// testLoopNoDescriptors: at the limit of descriptors a connection can leave the loop, and is then served, closed and
// waited for as any other.
func testLoopNoDescriptors(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, client, Config{})
	nc, in := connect(t, addr)
	ask(t, nc, in, "SET descriptors a\r\n", "+OK\r\n")
	require.Equal(t, 1, s.looping())
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err := unix.Dup(0)
	_, werr := io.WriteString(nc, "APPEND descriptors b\r\nGET descriptors\r\n")
	got := make([]byte, len(":2\r\n$2\r\nab\r\n"))
	_, rerr := io.ReadFull(in, got)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, unix.EMFILE)
	require.NoError(t, errors.Join(werr, rerr))
	require.Equal(t, ":2\r\n$2\r\nab\r\n", string(got))
	require.Zero(t, s.looping())
	_, err = io.WriteString(nc, strings.Repeat("ECHO "+strings.Repeat("x", 40_000)+"\r\n", 10)) // the client has to be waited for, too
	require.NoError(t, err)
	want := strings.Repeat("$40000\r\n"+strings.Repeat("x", 40_000)+"\r\n", 10)
	got = make([]byte, len(want))
	_, err = io.ReadFull(in, got)
	require.NoError(t, err)
	require.True(t, want == string(got))
	require.NoError(t, s.Shutdown(t.Context())) // ends a read that waits
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// A looked context calls a function each time that its Err was called.
type looked struct {
	context.Context
	after func()
}

func (l looked) Err() error {
	defer l.after()
	return l.Context.Err()
}

// testLoopCloseIsHeard: Close is called right after the loop has checked for it. The loop ends nevertheless.
func testLoopCloseIsHeard(t *testing.T, client *hydra.Client) {
	store := stuck{client, make(chan func(error), 1)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(store, Config{})
	var lp *loop
	var now atomic.Bool
	closed := make(chan error, 1)
	s.ctx = looked{s.ctx, func() {
		if now.CompareAndSwap(true, false) {
			go func() { closed <- s.Close() }()
			for !lp.ending.Load() {
				time.Sleep(time.Millisecond)
			}
		}
	}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	nc, _ := connect(t, l.Addr().String())
	_, err = io.WriteString(nc, "SET a 1\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(store.begun) > 0 }, 10*time.Second, time.Millisecond)
	_, err = io.WriteString(nc, "PING\r\n") // the loop stops watching the socket
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	lp = s.loop
	s.mu.Unlock()
	now.Store(true)
	lp.ring()
	store.requireClosed(t, closed, "the loop sleeps while the server closes")
	require.ErrorIs(t, <-served, ErrClosed)
}

// A patient store counts calls that wait for an answer.
type patient struct {
	*hydra.Client
	calls atomic.Int64
}

func (p *patient) GetInto(ctx context.Context, key, dst []byte) ([]byte, error) {
	p.calls.Add(1)
	return p.Client.GetInto(ctx, key, dst)
}

func (p *patient) Put(ctx context.Context, key, value []byte, e ...hydra.Expiry) (uint64, error) {
	p.calls.Add(1)
	return p.Client.Put(ctx, key, value, e...)
}

func (p *patient) Batch(ctx context.Context, list []hydra.Request) error {
	p.calls.Add(1)
	return p.Client.Batch(ctx, list)
}

// testLoopWaitsForNothing: plain commands, correct or not, on one key or on several, are executed without a call that
// waits.
func testLoopWaitsForNothing(t *testing.T, client *hydra.Client) {
	store := &patient{Client: client}
	s, addr := serve(t, store, Config{})
	nc, in := connect(t, addr)
	ask(t, nc, in, "SET v 1\r\nSET w 1 EX x\r\nSET w 1\r\nINCR w\r\nSET w x EX x\r\nINCRBY w 2\r\nINCRBY w x\r\nSETEX w 1 1 1\r\nGET w\r\nGET\r\nPING\r\n", "+OK\r\n-ERR value is not an integer or out of range\r\n+OK\r\n:2\r\n"+
		"-ERR value is not an integer or out of range\r\n:4\r\n-ERR value is not an integer or out of range\r\n-ERR wrong number of arguments for 'setex' command\r\n"+
		"$1\r\n4\r\n-ERR wrong number of arguments for 'get' command\r\n+PONG\r\n")
	require.Equal(t, 1, s.looping())
	require.Zero(t, store.calls.Load())
}

// elsewhere is a local store whose requests are completed by other goroutines than the caller's.
type elsewhere struct{ *hydra.Client }

func (e elsewhere) Serve() { go e.Client.Serve() }

// A stuck store answers no request before release or Withdraw is called.
type stuck struct {
	*hydra.Client
	begun chan func(error)
}

func (s stuck) Begin(b *hydra.Begun, list []hydra.Request) {
	s.begun <- func(err error) {
		for i := range list {
			list[i].Err = err
		}
		s.Client.Begin(b, nil)
	}
}

func (s stuck) Withdraw(b *hydra.Begun, err error) { (<-s.begun)(err) }

// testLoopWakes: when the loop sleeps, all answers have been sent.
func testLoopWakes(t *testing.T, client *hydra.Client) {
	s, addr := serve(t, elsewhere{client}, Config{})
	nc, in := connect(t, addr)
	for range 3000 {
		ask(t, nc, in, "SET a 1\r\n", "+OK\r\n")
	}
	require.Equal(t, 1, s.looping())
}

// testLoopEnds: Close ends connections that wait for requests, and Shutdown those that wait for input. Both take
// almost no time.
func testLoopEnds(t *testing.T, client *hydra.Client) {
	store := stuck{client, make(chan func(error), 1)}
	s, addr := serve(t, store, Config{})
	nc, in := connect(t, addr)
	_, err := io.WriteString(nc, "SET a 1\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(store.begun) > 0 }, 10*time.Second, time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	store.requireClosed(t, closed, "Close waits for requests")
	got, _ := io.ReadAll(in)
	require.NotContains(t, string(got), "+OK")

	s, addr = serve(t, client, Config{})
	nc, in = connect(t, addr)
	ask(t, nc, in, "PING\r\n", "+PONG\r\n")
	began := time.Now()
	require.NoError(t, s.Shutdown(t.Context()))
	require.Less(t, time.Since(began), 5*time.Second)
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
}

// testLoopLeaves: a client ends while its request is being served. The server keeps nothing of it, and the loop sleeps
// meanwhile.
func testLoopLeaves(t *testing.T, client *hydra.Client) {
	store := stuck{client, make(chan func(error), 1)}
	s, addr := serve(t, store, Config{})
	nc, _ := connect(t, addr)
	_, err := io.WriteString(nc, "SET a 1\r\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(store.begun) > 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, 1, s.Connections())
	nc.Close()
	require.Eventually(t, s.loop.asleep.Load, 10*time.Second, time.Millisecond)
	(<-store.begun)(nil)
	assert.Eventually(t, func() bool { return s.Connections() == 0 }, 10*time.Second, time.Millisecond)
}

// TestLoopDurable: writes that were acknowledged to 20 connections are in the files, each key with the value of its
// last acknowledgement.
func TestLoopDurable(t *testing.T) {
	dir := t.TempDir()
	o := machine.Options{Dir: dir, Durability: shard.Sync}
	const clients, rounds = 20, 20
	t.Run("write", func(t *testing.T) {
		s, addr := serve(t, newLocal(t, o), Config{})
		t.Run("clients", func(t *testing.T) {
			for id := range clients {
				t.Run(fmt.Sprint(id), func(t *testing.T) {
					t.Parallel()
					nc, in := connect(t, addr)
					for i := range rounds {
						ask(t, nc, in, fmt.Sprintf("SET k%d %d\r\nINCR k%d\r\n", id, i, id), fmt.Sprintf("+OK\r\n:%d\r\n", i+1))
					}
				})
			}
		})
		require.Eventually(t, func() bool { return s.Connections() == 0 }, 10*time.Second, time.Millisecond)
	})
	client := newLocal(t, o)
	for id := range clients {
		v, err := client.Get(context.Background(), fmt.Appendf(nil, "k%d", id))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(rounds), string(v))
	}
}

// requireClosed waits until Close has sent its result to closed. If it does not, the running request is ended, so that
// the test ends too.
func (s stuck) requireClosed(t *testing.T, closed <-chan error, otherwise string) {
	t.Helper()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(5 * time.Second):
		select {
		case end := <-s.begun:
			end(hydra.ErrUnknownOutcome)
		default:
		}
		t.Fatal(otherwise)
	}
}
