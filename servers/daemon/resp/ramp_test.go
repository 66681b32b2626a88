package resp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
)

// serveRamp serves a RAMP table of three partitions.
func serveRamp(t *testing.T) string {
	d := mem.NewNetwork().Open()
	n, err := machine.Open(machine.Options{Partitions: 3, Extent: 16 << 20, Alloc: d.Alloc})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, n.Close())
		assert.NoError(t, d.Close())
	})
	table := RampTable{Client: ramp.Local(n, 0)}
	_, addr := serve(t, table, Config{Transactions: table})
	return addr
}

func TestRampTable(t *testing.T) {
	c := dial(t, serveRamp(t))
	do := func(want any, command string, args ...any) {
		t.Helper()
		got, err := c.Do(command, args...)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	do("OK", "MSET", "a", "1", "b", "2", "a", "3", "empty", "")
	do([]any{[]byte("3"), nil, []byte("2"), []byte("3"), []byte{}}, "MGET", "a", "nothing", "b", "a", "empty")
	do("OK", "SET", "c", "4")
	do([]byte("4"), "GET", "c")
	do(nil, "GET", "nothing")
	do(int64(3), "EXISTS", "a", "b", "c", "nothing")
	do(int64(2), "DEL", "a", "nothing", "b")
	do([]any{nil, nil, []byte("4")}, "MGET", "a", "b", "c")
	do(int64(1), "STRLEN", "c")
	for _, x := range [][]any{{"INCR", "n"}, {"SETNX", "n", "1"}, {"SET", "n", "1", "EX", "5"}, {"SET", "n", "1", "NX"}, {"APPEND", "c", "x"}, {"GETDEL", "c"}, {"EXPIRE", "c", "5"}, {"DBSIZE"}} {
		_, err := c.Do(x[0].(string), x[1:]...)
		require.ErrorContains(t, err, "RAMP table", "%v", x)
	}
	do(nil, "GET", "n")
	do([]byte("4"), "GET", "c")
	for i := range 100 { // a pipeline
		require.NoError(t, c.Send("SET", fmt.Sprint("p", i), i))
		require.NoError(t, c.Send("GET", fmt.Sprint("p", i)))
	}
	require.NoError(t, c.Flush())
	for i := range 100 {
		got, err := c.Receive()
		require.NoError(t, err)
		require.Equal(t, "OK", got)
		n, err := redis.Int(c.Receive())
		require.NoError(t, err)
		require.Equal(t, i, n)
	}
	_, err := c.Do("SET", "long", string(make([]byte, 1<<20+1)))
	require.ErrorContains(t, err, "too large")
}

// TestRampMSetIsAtomic: an MGET finds all of an MSET or nothing of it, also with keys of several partitions.
func TestRampMSetIsAtomic(t *testing.T) {
	addr := serveRamp(t)
	var wait sync.WaitGroup
	var stop atomic.Bool
	keys := make([]any, 8)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	for w := range 2 {
		c := dial(t, addr)
		wait.Go(func() {
			for n := w; !stop.Load(); n += 2 {
				var args []any
				for _, k := range keys {
					args = append(args, k, n)
				}
				if _, err := c.Do("MSET", args...); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	c := dial(t, addr)
	seen := map[string]bool{}
	for range 1000 {
		values, err := redis.Strings(c.Do("MGET", keys...))
		require.NoError(t, err)
		seen[values[0]] = true
		for _, v := range values {
			require.Equal(t, values[0], v)
		}
	}
	stop.Store(true)
	wait.Wait()
	require.Greater(t, len(seen), 1)
}
