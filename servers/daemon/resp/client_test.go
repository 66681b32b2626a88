package resp

// These tests use redigo, a widely used client. goredis_test.go has the same tests with go-redis.

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

// dial connects a client, and closes it when the test ends.
func dial(t *testing.T, addr string, options ...redis.DialOption) redis.Conn {
	c, err := redis.Dial("tcp", addr, options...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestPipeline sends commands that depend on each other without awaiting answers.
func TestPipeline(t *testing.T) {
	if testing.Short() {
		t.Skip("one connection: nothing for the race detector to see")
	}
	_, addr := serve(t, newStore(t), Config{})
	c := dial(t, addr)
	for round := range 10 {
		var want []any
		send := func(answer any, command string, args ...any) {
			require.NoError(t, c.Send(command, args...))
			want = append(want, answer)
		}
		for i := range 200 {
			key, value := fmt.Sprint("k", i%7), fmt.Sprint(round, "-", i)
			send("OK", "SET", key, value)
			send([]byte(value), "GET", key)
			send(int64(round*200+i+1), "INCR", "sum")
			send(int64(len(value)+1), "APPEND", key, "x")
			send([]byte(value+"x"), "GET", key)
			if i%10 == 0 {
				send(nil, "NOSUCH") // an error does not affect the other commands
			}
		}
		require.NoError(t, c.Flush())
		for i, w := range want {
			got, err := c.Receive()
			if w == nil {
				require.ErrorContains(t, err, "unknown command")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, w, got, "answer %d of round %d", i, round)
		}
	}
}

// TestConcurrent counts with every command that reads and writes a key, from many connections: nothing is lost.
func TestConcurrent(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
	const clients = 10
	rounds := 100
	if testing.Short() {
		rounds /= 4
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken, locked := map[string]int{}, 0
	for id := range clients {
		c := dial(t, addr)
		wg.Go(func() {
			for i := range rounds {
				_, err := c.Do("INCR", "incr")
				assert.NoError(t, err)
				_, err = c.Do("APPEND", "append", "x")
				assert.NoError(t, err)
				old, err := redis.String(c.Do("GETSET", "swap", fmt.Sprint(id, "-", i)))
				if err != nil && !errors.Is(err, redis.ErrNil) {
					t.Error(err)
				}
				won, err := redis.Bool(c.Do("SETNX", fmt.Sprint("lock", i), id))
				assert.NoError(t, err)
				mu.Lock()
				if old != "" {
					taken[old]++
				}
				if won {
					locked++
				}
				mu.Unlock()
				_, err = c.Do("EXPIRE", "append", 3600)
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	c := dial(t, addr)
	sum, err := redis.Int(c.Do("GET", "incr"))
	assert.NoError(t, err)
	assert.Equal(t, clients*rounds, sum)
	length, err := redis.Int(c.Do("STRLEN", "append"))
	assert.NoError(t, err)
	assert.Equal(t, clients*rounds, length)
	assert.Equal(t, rounds, locked, "each lock is taken once")
	assert.Len(t, taken, clients*rounds-1, "each value but the last is swapped out")
	for v, n := range taken {
		assert.Equal(t, 1, n, v)
	}
}

func TestScan(t *testing.T) {
	if testing.Short() {
		t.Skip("one connection: nothing for the race detector to see")
	}
	_, addr := serve(t, newStore(t), Config{})
	c := dial(t, addr)
	want := map[string]bool{}
	for i := range 3000 {
		key := fmt.Sprintf("k:%d", i)
		want[key] = true
		require.NoError(t, c.Send("SET", key, i))
	}
	require.NoError(t, c.Send("SET", "other", 1))
	_, err := c.Do("SET", "gone", 1, "PXAT", 1) // reads the answers before it as well
	require.NoError(t, err)
	for _, count := range []int{0, 1, 100, 100_000} {
		got := map[string]bool{}
		for cursor := "0"; ; {
			args := redis.Args{cursor, "MATCH", "k:*"}
			if count > 0 {
				args = args.Add("COUNT", count)
			}
			answer, err := redis.Values(c.Do("SCAN", args...))
			require.NoError(t, err)
			var keys []string
			_, err = redis.Scan(answer, &cursor, &keys)
			require.NoError(t, err)
			for _, key := range keys {
				require.False(t, got[key], "%s twice", key)
				got[key] = true
			}
			if cursor == "0" {
				break
			}
		}
		require.Equal(t, want, got)
	}
	size := func() int {
		n, err := redis.Int(c.Do("DBSIZE"))
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 3001, size())
	_, err = c.Do("FLUSHDB")
	require.NoError(t, err)
	require.Zero(t, size())
	_, err = c.Do("SCAN", "x")
	require.ErrorContains(t, err, "invalid cursor")
	_, err = c.Do("SCAN", "0", "COUNT")
	require.ErrorContains(t, err, "syntax error")
}

// TestLongValues sends values that are longer than a value may be. Each is answered with an error that tells the
// limit, the connection goes on, and the server keeps no memory for them.
func TestLongValues(t *testing.T) {
	if testing.Short() {
		t.Skip("one connection: nothing for the race detector to see")
	}
	s, addr := serve(t, newStore(t), Config{MaxCommand: 8 << 20})
	c := dial(t, addr)
	do := func(command string, args ...any) error {
		_, err := c.Do(command, args...)
		return err
	}
	const limit = 8<<20 - hydra.MaxKey - 1024
	most := strings.Repeat("x", limit)
	require.NoError(t, do("SET", "k", most))
	id, err := redis.Int(c.Do("CLIENT", "ID"))
	require.NoError(t, err)
	for _, n := range []int{limit + 1, 100 << 20} {
		require.EqualError(t, do("SET", "k", strings.Repeat("y", n)),
			fmt.Sprintf("ERR an argument of %d bytes: this server takes values of up to %d bytes; store a larger one in several keys", n, limit))
		require.LessOrEqual(t, s.budget.used.Load(), int64(16<<20))
	}
	require.ErrorContains(t, do("MSET", "a", most+"1", "b", "2", "c", most+"22"), fmt.Sprint(limit+2, " bytes: this server takes"))
	n, err := redis.Int(c.Do("EXISTS", "a", "b", "c"))
	require.NoError(t, err)
	require.Zero(t, n, "the command is dropped as a whole")
	got, err := redis.String(c.Do("GET", "k"))
	require.NoError(t, err)
	require.Equal(t, most, got)
	again, err := redis.Int(c.Do("CLIENT", "ID"))
	require.NoError(t, err)
	require.Equal(t, id, again, "the connection goes on")
	require.NoError(t, c.Send("SET", "p", "1"))
	require.NoError(t, c.Send("SET", "p", most+"1"))
	require.NoError(t, c.Send("GET", "p"))
	require.NoError(t, c.Flush())
	_, err = c.Receive()
	require.NoError(t, err)
	_, err = c.Receive()
	require.ErrorContains(t, err, fmt.Sprint(limit+1, " bytes"))
	got, err = redis.String(c.Receive())
	require.NoError(t, err)
	require.Equal(t, "1", got)
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

// TestAuthClient: a client that has a password sends it first, and is told if it is wrong.
func TestAuthClient(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{Password: "secret"})
	c := dial(t, addr, redis.DialPassword("secret"), redis.DialReadTimeout(time.Minute))
	_, err := c.Do("SET", "k", strings.Repeat("x", 1<<20))
	require.NoError(t, err)
	_, err = redis.Dial("tcp", addr, redis.DialPassword("wrong"))
	require.ErrorContains(t, err, "WRONGPASS")
	_, err = dial(t, addr).Do("PING")
	require.ErrorContains(t, err, "NOAUTH")
}
