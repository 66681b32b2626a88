//go:build clients

package resp

// These tests use go-redis, which takes as long to compile as all other packages of the servers together: make
// soak-servers runs them. make test runs the same tests with redigo: TestPipeline and those after it.

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

// TestGoRedisPipeline sends commands that depend on each other without awaiting answers.
func TestGoRedisPipeline(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{})
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute}) // without retries: a pipeline that is sent again appends twice
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
				p.Do(ctx, "NOSUCH") // an error does not affect the other commands
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

// TestGoRedisConcurrent counts with every command that reads and writes a key, from many connections: nothing is lost.
func TestGoRedisConcurrent(t *testing.T) {
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

func TestGoRedisScan(t *testing.T) {
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

// TestGoRedisLongValues sends values that are longer than a value may be. Each is answered with an error that tells
// the limit, the connection goes on, and the server keeps no memory for them.
func TestGoRedisLongValues(t *testing.T) {
	s, addr := serve(t, newStore(t), Config{MaxCommand: 8 << 20})
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, MaxRetries: -1})
	defer c.Close()
	const limit = 8<<20 - hydra.MaxKey - 1024
	most := strings.Repeat("x", limit)
	require.NoError(t, c.Set(ctx, "k", most, 0).Err())
	id := c.ClientID(ctx).Val()
	for _, n := range []int{limit + 1, 100 << 20} {
		require.EqualError(t, c.Set(ctx, "k", strings.Repeat("y", n), 0).Err(),
			fmt.Sprintf("ERR an argument of %d bytes: this server takes values of up to %d bytes; store a larger one in several keys", n, limit))
		require.LessOrEqual(t, s.budget.used.Load(), int64(16<<20))
	}
	require.ErrorContains(t, c.MSet(ctx, "a", most+"1", "b", "2", "c", most+"22").Err(), fmt.Sprint(limit+2, " bytes: this server takes"))
	require.EqualValues(t, 0, c.Exists(ctx, "a", "b", "c").Val(), "the command is dropped as a whole")
	require.Equal(t, most, c.Get(ctx, "k").Val())
	require.Equal(t, id, c.ClientID(ctx).Val(), "the connection goes on")
	p := c.Pipeline()
	before, long, behind := p.Set(ctx, "p", "1", 0), p.Set(ctx, "p", most+"1", 0), p.Get(ctx, "p")
	p.Exec(ctx)
	require.NoError(t, before.Err())
	require.ErrorContains(t, long.Err(), fmt.Sprint(limit+1, " bytes"))
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

// TestGoRedisAuth: go-redis sends the password in its greeting.
func TestGoRedisAuth(t *testing.T) {
	_, addr := serve(t, newStore(t), Config{Password: "secret"})
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: addr, Password: "secret"})
	defer c.Close()
	require.NoError(t, c.Set(ctx, "k", strings.Repeat("x", 1<<20), 0).Err())
	wrong := redis.NewClient(&redis.Options{Addr: addr, Password: "wrong"})
	defer wrong.Close()
	require.ErrorContains(t, wrong.Ping(ctx).Err(), "WRONGPASS")
}
