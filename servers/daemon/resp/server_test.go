package resp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/shard"
)

// newStore returns a client of a node of two shards in this process.
func newStore(t testing.TB) *hydra.Client {
	network := mem.NewNetwork()
	served, own := network.Open(), network.Open()
	n, err := machine.Open(machine.Options{
		Shards: 2, Durability: shard.Memory, Extent: 16 << 20,
		Listen: []machine.Listen{{Domain: served, Addr: "node", Public: "mem:node"}},
	})
	require.NoError(t, err)
	c, err := hydra.Dial(t.Context(), []string{"mem:node"}, &hydra.Options{Fabrics: map[string]fabric.Domain{"mem": own}})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, own.Close())
		assert.NoError(t, n.Close())
		assert.NoError(t, served.Close())
	})
	return c
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

// A script is lines of what is sent, and what has to come back: < for the exact bytes of the answer's lines. Words in answers that start
// with ~ match any line with that prefix.
func script(t testing.TB, addr, text string) {
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
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

func TestCommands(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
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
			< -ERR invalid DB index
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

// TestPipeline sends commands that depend on each other without awaiting answers.
func TestPipeline(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute}) // a pipeline that is sent again appends twice
	defer c.Close()
	ctx := t.Context()
	for round := range 50 {
		p := c.Pipeline()
		var want []string
		var got []*redis.StringCmd
		var sums []*redis.IntCmd
		for i := range 200 {
			key := fmt.Sprint("k", i%7)
			p.Set(ctx, key, fmt.Sprint(round, i), 0)
			got, want = append(got, p.Get(ctx, key)), append(want, fmt.Sprint(round, i))
			sums = append(sums, p.Incr(ctx, "sum"))
			p.Append(ctx, key, "x")
			got, want = append(got, p.Get(ctx, key)), append(want, fmt.Sprint(round, i, "x"))
			if i%10 == 0 {
				p.Do(ctx, "NOSUCH") // an error leaves the others alone
			}
		}
		_, err := p.Exec(ctx)
		require.ErrorContains(t, err, "unknown command")
		for i := range got {
			require.NoError(t, got[i].Err())
			require.Equal(t, strings.ReplaceAll(want[i], " ", ""), strings.ReplaceAll(got[i].Val(), " ", ""))
		}
		for i, s := range sums {
			require.EqualValues(t, round*200+i+1, s.Val())
		}
	}
}

// TestConcurrent counts with every command that reads and writes a key, from many connections: nothing is lost.
func TestConcurrent(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
	ctx := t.Context()
	const clients, rounds = 10, 100
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken, locked := map[string]int{}, 0
	for id := range clients {
		wg.Go(func() {
			c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1})
			defer c.Close()
			for i := range rounds {
				assert.NoError(t, c.Incr(ctx, "incr").Err())
				assert.NoError(t, c.Append(ctx, "append", "x").Err())
				old, err := c.GetSet(ctx, "swap", fmt.Sprint(id, "-", i)).Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					t.Error(err)
				}
				won, err := c.SetNX(ctx, fmt.Sprint("lock", i), id, 0).Result()
				assert.NoError(t, err)
				mu.Lock()
				if old != "" {
					taken[old]++
				}
				if won {
					locked++
				}
				mu.Unlock()
				assert.NoError(t, c.Expire(ctx, "append", time.Hour).Err())
			}
		})
	}
	wg.Wait()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	assert.Equal(t, fmt.Sprint(clients*rounds), c.Get(ctx, "incr").Val())
	assert.EqualValues(t, clients*rounds, c.StrLen(ctx, "append").Val())
	assert.Equal(t, rounds, locked, "each lock is taken once")
	assert.Len(t, taken, clients*rounds-1, "each value but the last is swapped out")
	for v, n := range taken {
		assert.Equal(t, 1, n, v)
	}
}

func TestScan(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	want := map[string]bool{}
	p := c.Pipeline()
	for i := range 3000 {
		key := fmt.Sprintf("k:%d", i)
		want[key] = true
		p.Set(ctx, key, i, 0)
	}
	p.Set(ctx, "other", 1, 0)
	p.Do(ctx, "SET", "gone", 1, "PXAT", 1)
	_, err := p.Exec(ctx)
	require.NoError(t, err)
	for _, count := range []int64{0, 1, 100, 100_000} {
		got := map[string]bool{}
		it := c.Scan(ctx, 0, "k:*", count).Iterator()
		for it.Next(ctx) {
			require.False(t, got[it.Val()], "%s twice", it.Val())
			got[it.Val()] = true
		}
		require.NoError(t, it.Err())
		require.Equal(t, want, got)
	}
	require.EqualValues(t, 3001, c.DBSize(ctx).Val())
	require.NoError(t, c.FlushDB(ctx).Err())
	require.Zero(t, c.DBSize(ctx).Val())
	require.ErrorContains(t, c.Do(ctx, "SCAN", "x").Err(), "invalid cursor")
	require.ErrorContains(t, c.Do(ctx, "SCAN", "0", "COUNT").Err(), "syntax error")
}

func TestAuth(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{Password: "secret"})
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
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: addr, Password: "secret"})
	defer c.Close()
	require.NoError(t, c.Set(ctx, "k", strings.Repeat("x", 1<<20), 0).Err())
	wrong := redis.NewClient(&redis.Options{Addr: addr, Password: "wrong"})
	defer wrong.Close()
	require.ErrorContains(t, wrong.Ping(ctx).Err(), "WRONGPASS")
}

// TestLongValues sends values that are longer than a value may be: each is answered with an error that tells the limit, the connection goes on, and
// the server keeps no memory for them.
func TestLongValues(t *testing.T) {
	s, addr := serve(t, newStore(t), Config{})
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1})
	defer c.Close()
	most := strings.Repeat("x", hydra.MaxValue)
	require.NoError(t, c.Set(ctx, "k", most, 0).Err())
	id := c.ClientID(ctx).Val()
	for _, n := range []int{hydra.MaxValue + 1, 100 << 20} {
		require.EqualError(t, c.Set(ctx, "k", strings.Repeat("y", n), 0).Err(),
			fmt.Sprintf("ERR an argument of %d bytes: this server takes values of up to 4194304 bytes; store a larger one in several keys", n))
		require.Less(t, s.budget.used.Load(), int64(3*hydra.MaxValue))
	}
	require.ErrorContains(t, c.MSet(ctx, "a", most+"1", "b", "2", "c", most+"22").Err(), "4194306 bytes: this server takes")
	require.ErrorContains(t, c.Append(ctx, "k", "y").Err(), "4194304 bytes")
	require.EqualValues(t, 0, c.Exists(ctx, "a", "b", "c").Val(), "the command is dropped as a whole")
	require.Equal(t, most, c.Get(ctx, "k").Val())
	require.Equal(t, id, c.ClientID(ctx).Val(), "the connection goes on")
	p := c.Pipeline()
	before, long, behind := p.Set(ctx, "p", "1", 0), p.Set(ctx, "p", most+"1", 0), p.Get(ctx, "p")
	p.Exec(ctx)
	require.NoError(t, before.Err())
	require.ErrorContains(t, long.Err(), "4194305 bytes")
	require.Equal(t, "1", behind.Val())
	script(t, addr, `
		*2
		$536870913
		< -ERR Protocol error: invalid bulk length`)
	script(t, addr, `
		*2
		$3
		GET
		$-1
		< -ERR Protocol error: invalid bulk length`)
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
