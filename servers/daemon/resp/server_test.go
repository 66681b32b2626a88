package resp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/shard"
)

// newNode returns a node of two shards in this process, and the network on which it listens.
func newNode(t testing.TB, o machine.Options) (*machine.Node, *mem.Network) {
	network := mem.NewNetwork()
	served := network.Open()
	o.Shards, o.Extent, o.Listen = 2, 16<<20, []machine.Listen{{Domain: served, Addr: "node", Public: "mem:node"}}
	n, err := machine.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, n.Close())
		assert.NoError(t, served.Close())
	})
	return n, network
}

// newStore returns a client of a node of two shards in this process.
func newStore(t testing.TB) *hydra.Client {
	_, network := newNode(t, machine.Options{Durability: shard.Memory})
	own := network.Open()
	c, err := hydra.Dial(t.Context(), []string{"mem:node"}, &hydra.Options{Fabrics: map[string]fabric.Domain{"mem": own}})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, own.Close())
	})
	return c
}

// newLocal returns a client whose calls are function calls, so that a server with it has a loop.
func newLocal(t testing.TB, o machine.Options) *hydra.Client {
	n, _ := newNode(t, o)
	c, err := hydra.Local(n, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// withStores runs a test with a client that sends messages, and with one that makes function calls.
func withStores(t *testing.T, test func(*testing.T, *hydra.Client)) {
	t.Run("messages", func(t *testing.T) { test(t, newStore(t)) })
	t.Run("calls", func(t *testing.T) { test(t, newLocal(t, machine.Options{Durability: shard.Memory})) })
}

func serve(t testing.TB, store Store, o Config) (*Server, string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := NewServer(store, o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, ErrClosed)
		require.Zero(t, s.budget.used.Load(), "buffers of connections that have ended")
	})
	return s, l.Addr().String()
}

// A script alternates lines that are sent with lines that have to come back: < stands before the exact bytes of the
// answer's lines. Words in answers that start with ~ match any line with that prefix.
func script(t testing.TB, addr, text string) {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(nc)
	for line := range strings.Lines(strings.TrimSpace(text)) {
		line = strings.TrimSpace(line)
		want, answer := strings.CutPrefix(line, "< ")
		if !answer {
			_, err := fmt.Fprintf(nc, "%s\r\n", line)
			require.NoError(t, err)
			continue
		}
		if strings.HasSuffix(want, " |") {
			want += " " // the last line is empty
		}
		for word := range strings.SplitSeq(want, " | ") {
			got, err := in.ReadString('\n')
			require.NoError(t, err, "waiting for %q", word)
			got = strings.TrimSuffix(got, "\r\n")
			if prefix, ok := strings.CutPrefix(word, "~"); ok {
				require.True(t, strings.HasPrefix(got, prefix), "got %q, want %q... in %q", got, prefix, line)
			} else {
				require.Equal(t, word, got, line)
			}
		}
	}
}

// TestRequestsOfBrowsers sends requests that a web page can make a browser send, with commands in the body. None of
// these commands is executed. A command before such a request is.
func TestRequestsOfBrowsers(t *testing.T) { withStores(t, testRequestsOfBrowsers) }

func testRequestsOfBrowsers(t *testing.T, store *hydra.Client) {
	_, addr := serve(t, store, Config{})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nContent-Length: 15\r\n\r\nSET browser 1\r\n",
		"post / HTTP/1.1\r\n\r\nSET browser 1\r\n",
		"GET / HTTP/1.1\r\nHost: localhost:6380\r\n\r\nSET browser 1\r\n",
		"PUT /x HTTP/1.1\nhost: localhost\n\nSET browser 1\n",
		"*1\r\n$4\r\nPOST\r\n*3\r\n$3\r\nSET\r\n$7\r\nbrowser\r\n$1\r\n1\r\n",
	} {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		nc.SetDeadline(time.Now().Add(time.Minute))
		_, err = io.WriteString(nc, "SET before 1\r\n"+request)
		require.NoError(t, err)
		require.NoError(t, nc.(*net.TCPConn).CloseWrite())
		answers, err := io.ReadAll(nc)
		require.NoError(t, err, request)
		require.True(t, strings.HasPrefix(string(answers), "+OK\r\n"), "%q", answers)
		require.LessOrEqual(t, strings.Count(string(answers), "\r\n"), 2, "%q", answers)
		require.NoError(t, nc.Close())
	}
	script(t, addr, `
		GET browser
		< $-1
		GET before
		< $1 | 1`)
}

func TestCommands(t *testing.T) { withStores(t, testCommands) }

func testCommands(t *testing.T, store *hydra.Client) {
	_, addr := serve(t, store, Config{})
	for name, text := range map[string]string{
		"connection": `
			PING
			< +PONG
			PING hello
			< $5 | hello
			ECHO "a b"
			< $3 | a b
			SELECT 0
			< +OK
			SELECT 1
			< -ERR DB index is out of range
			SELECT x
			< -ERR value is not an integer or out of range
			AUTH x
			< ~-ERR AUTH <password> called without any password
			CLIENT GETNAME
			< $-1
			CLIENT SETNAME me
			< +OK
			CLIENT GETNAME
			< $2 | me
			CLIENT SETINFO LIB-NAME x
			< +OK
			CLIENT KILL x
			< ~-ERR unknown subcommand
			HELLO 4
			< -NOPROTO unsupported protocol version
			HELLO 3
			< %7 | $6 | server | $5 | redis | $7 | version | $5 | 7.2.0 | $5 | proto | :3 | $2 | id | ~: | $4 | mode | $10 | standalone | $4 | role | $6 | master | $7 | modules | *0
			GET none
			< _
			MULTI
			< ~-ERR unknown command 'MULTI'
			CONFIG GET save
			< %1 | $4 | save | $0 |
			CONFIG SET save x
			< ~-ERR CONFIG SET is not supported
			COMMAND COUNT
			< ~:
			COMMAND DOCS get
			< %1 | $3 | get | %3 | $7 | summary | ~$ | ~Returns | $5 | since | $5 | 1.0.0 | $5 | group | $6 | string
			QUIT
			< +OK`,
		"strings": `
			SET s:a 1
			< +OK
			GET s:a
			< $1 | 1
			SET s:a 2 NX
			< $-1
			SET s:twice 1 PX 500000 NX px 1000000 NX
			< +OK
			TTL s:twice
			< :1000
			SET s:twice 1 EX 10 PX 10
			< -ERR syntax error
			SET s:twice 1 EX -5 KEEPTTL
			< -ERR syntax error
			SET s:twice 1 EX x foo
			< -ERR syntax error
			SET s:twice 1 EX x EX 100 GET
			< $1 | 1
			SET s:twice 1 EXAT -5
			< -ERR invalid expire time in 'set' command
			EXPIRE s:twice x FOO
			< -ERR Unsupported option FOO
			EXPIRE s:twice x NX GT
			< -ERR NX and XX, GT or LT options at the same time are not compatible
			EXPIRE s:twice x GT
			< -ERR value is not an integer or out of range
			SET s:a 2 XX
			< +OK
			SET s:b 2 XX
			< $-1
			SET s:a 3 GET
			< $1 | 2
			SET s:a 4 NX GET
			< $1 | 3
			GET s:a
			< $1 | 3
			SET s:b 1 NX GET
			< $-1
			SET s:c 1 XX GET
			< $-1
			GET s:c
			< $-1
			SET s:a 1 NX XX
			< -ERR syntax error
			SET s:a 1 EX
			< -ERR syntax error
			SET s:a 1 EX x
			< -ERR value is not an integer or out of range
			SET s:a 1 EX 0
			< -ERR invalid expire time in 'set' command
			SET s:a 1 EX 9223372036854775807
			< -ERR invalid expire time in 'set' command
			SET s:a 1 EX 10 KEEPTTL
			< -ERR syntax error
			SETEX s:a -1 x
			< -ERR invalid expire time in 'setex' command
			SETNX s:d 1
			< :1
			SETNX s:d 2
			< :0
			GETSET s:d 3
			< $1 | 1
			GETDEL s:d
			< $1 | 3
			GETDEL s:d
			< $-1
			APPEND s:e foo
			< :3
			APPEND s:e bar
			< :6
			STRLEN s:e
			< :6
			STRLEN s:none
			< :0
			MSET s:f 1 s:g 2 s:f 3
			< +OK
			MGET s:f s:none s:g s:f
			< *4 | $1 | 3 | $-1 | $1 | 2 | $1 | 3
			MSET s:f
			< -ERR wrong number of arguments for 'mset' command
			MSET s:f 1 s:g
			< -ERR wrong number of arguments for 'mset' command
			DEL s:f s:g s:g s:none
			< :2
			EXISTS s:a s:a s:none
			< :2
			GET
			< -ERR wrong number of arguments for 'get' command`,
		"numbers": `
			INCR n
			< :1
			INCRBY n 41
			< :42
			DECR n
			< :41
			DECRBY n 50
			< :-9
			INCRBY n x
			< -ERR value is not an integer or out of range
			INCRBY n +1
			< -ERR value is not an integer or out of range
			DECRBY n -9223372036854775808
			< -ERR decrement would overflow
			SET n 9223372036854775807
			< +OK
			INCR n
			< -ERR increment or decrement would overflow
			SET n 007
			< +OK
			INCR n
			< -ERR value is not an integer or out of range
			SET n +7
			< +OK
			INCR n
			< -ERR value is not an integer or out of range
			SET n " 7"
			< +OK
			INCR n
			< -ERR value is not an integer or out of range`,
		"expiry": `
			SET e 1
			< +OK
			TTL e
			< :-1
			TTL none
			< :-2
			EXPIRE e 100
			< :1
			TTL e
			< :100
			EXPIRE none 100
			< :0
			EXPIRE e 200 NX
			< :0
			EXPIRE e 50 GT
			< :0
			EXPIRE e 50 LT XX
			< :1
			EXPIRE e 50 NX XX
			< ~-ERR NX and XX
			EXPIRE e 50 FOO
			< -ERR Unsupported option FOO
			APPEND e 2
			< :2
			TTL e
			< :50
			INCR e
			< :13
			TTL e
			< :50
			SET e 5 KEEPTTL
			< +OK
			TTL e
			< :50
			PERSIST e
			< :1
			PERSIST e
			< :0
			TTL e
			< :-1
			SET e 5 EX 100
			< +OK
			SET e 5
			< +OK
			TTL e
			< :-1
			EXPIREAT e 1
			< :1
			EXISTS e
			< :0
			SET e 1 PXAT 1
			< +OK
			GET e
			< $-1
			EXPIRE e x
			< -ERR value is not an integer or out of range
			EXPIRE e 9223372036854775807
			< -ERR invalid expire time in 'expire' command
			TYPE e
			< +none
			PSETEX e 100000 x
			< +OK
			TYPE e
			< +string
			TTL e
			< :100`,
	} {
		t.Run(name, func(t *testing.T) {
			script(t, addr, text)
		})
	}
}

func TestAuth(t *testing.T) { withStores(t, testAuth) }

func testAuth(t *testing.T, store *hydra.Client) {
	_, addr := serve(t, store, Config{Password: "secret"})
	script(t, addr, `
		PING
		< -NOAUTH Authentication required.
		NOSUCH
		< -NOAUTH Authentication required.
		HELLO 3
		< ~-NOAUTH HELLO must be called
		AUTH wrong
		< ~-WRONGPASS
		AUTH other secret
		< ~-WRONGPASS
		HELLO 3 AUTH default wrong
		< ~-WRONGPASS
		AUTH secret
		< +OK
		PING
		< +PONG`)
	script(t, addr, `
		*11
		< -ERR Protocol error: unauthenticated multibulk length`)
	script(t, addr, `
		*1
		$16385
		< -ERR Protocol error: unauthenticated bulk length`)
}

// TestConnections changes the same keys from many connections at once. Each connection sends all of its commands
// before it awaits an answer. Nothing is lost.
func TestConnections(t *testing.T) { withStores(t, testConnections) }

func testConnections(t *testing.T, store *hydra.Client) {
	_, addr := serve(t, store, Config{})
	const clients, rounds = 10, 50
	t.Run("clients", func(t *testing.T) {
		for id := range clients {
			t.Run(fmt.Sprint(id), func(t *testing.T) {
				t.Parallel()
				var sent, answers strings.Builder
				for i := range rounds {
					fmt.Fprintf(&sent, "INCR sum\nAPPEND text x\nINCR own:%d\nSETNX lock:%d %d\nEXPIRE text 100\nGET own:%d\n", id, i, id, id)
					fmt.Fprintf(&answers, "< ~: | ~: | :%d | ~: | :1 | $%d | %d\n", i+1, len(fmt.Sprint(i+1)), i+1)
				}
				script(t, addr, sent.String()+answers.String())
			})
		}
	})
	script(t, addr, fmt.Sprintf("GET sum\n< $3 | %d\nSTRLEN text\n< :%d\nDBSIZE\n< :%d", clients*rounds, clients*rounds, 2+clients+rounds))
}

// failing is a store whose calls all end with an error.
type failing struct {
	Store
	err error
}

func (f failing) GetInto(context.Context, []byte, []byte) ([]byte, error) { return nil, f.err }
func (f failing) Put(context.Context, []byte, []byte, ...hydra.Expiry) (uint64, error) {
	return 0, f.err
}
func (f failing) GetItem(context.Context, []byte) (hydra.Item, error) { return hydra.Item{}, f.err }
func (f failing) Batch(_ context.Context, list []hydra.Request) error {
	for i := range list {
		list[i].Err = f.err
	}
	return f.err
}
func (f failing) ScanPage(context.Context, uint64, *hydra.ScanOptions) ([]hydra.Entry, uint64, bool, error) {
	return nil, 0, false, f.err
}

func TestStoreErrors(t *testing.T) {
	for _, e := range storeErrors {
		_, addr := serve(t, failing{err: fmt.Errorf("call: %w", e.err)}, Config{})
		for _, line := range []string{"GET a", "SET a 1", "SETNX a 1", "INCR a", "APPEND a 1", "DEL a", "MSET a 1 b 2", "EXPIRE a 1", "TTL a", "SCAN 0", "DBSIZE", "FLUSHDB", "TYPE a"} {
			script(t, addr, line+"\n< -"+e.text)
		}
		script(t, addr, "MGET a b\n< *2 | -"+e.text+" | -"+e.text)
	}
}
