package resp

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/hydra"
)

// TestLargeValues: for clients of Redis, values above 4 MiB, which are stored in chunks, are like other values, in
// pipelines too. No client sees the chunks.
func TestLargeValues(t *testing.T) {
	if testing.Short() {
		t.Skip("one connection: nothing for the race detector to see")
	}
	withStores(t, testLargeValues)
}

func testLargeValues(t *testing.T, store *hydra.Client) {
	_, addr := serve(t, store, Config{})
	c := dial(t, addr)
	text := func(command string, args ...any) string {
		t.Helper()
		got, err := redis.String(c.Do(command, args...))
		require.NoError(t, err)
		return got
	}
	number := func(command string, args ...any) int {
		t.Helper()
		got, err := redis.Int(c.Do(command, args...))
		require.NoError(t, err)
		return got
	}
	long := strings.Repeat("0123456789", hydra.MaxValue/10+100_000)
	require.Equal(t, "OK", text("SET", "a", long))
	require.Equal(t, long, text("GET", "a"))
	other, err := redis.String(dial(t, addr).Do("GET", "a")) // a connection that has made no long command
	require.NoError(t, err)
	require.True(t, long == other)
	require.Equal(t, len(long), number("STRLEN", "a"))
	require.Equal(t, "OK", text("SET", "b", long[:hydra.MaxValue]))
	require.Equal(t, hydra.MaxValue+3, number("APPEND", "b", "abc"))
	require.Equal(t, long[:hydra.MaxValue]+"abc", text("GET", "b"))
	require.Equal(t, "OK", text("MSET", "c", "short", "d", long+"d"))
	got, err := redis.Strings(c.Do("MGET", "a", "c", "d", "none"))
	require.NoError(t, err)
	require.True(t, got[0] == long && got[1] == "short" && got[2] == long+"d" && got[3] == "")
	require.Equal(t, 1, number("EXPIRE", "d", "1000"))
	require.Greater(t, number("TTL", "d"), 900)
	require.Equal(t, long+"d", text("GET", "d"))
	for _, k := range []string{"a", "b", "a", "c"} {
		require.NoError(t, c.Send("GET", k))
	}
	require.NoError(t, c.Flush())
	for _, want := range []string{long, long[:hydra.MaxValue] + "abc", long, "short"} {
		got, err := redis.String(c.Receive())
		require.NoError(t, err)
		require.True(t, want == got)
	}
	require.Equal(t, 4, number("DBSIZE"))
	require.Equal(t, long, text("GETDEL", "a"))
	require.Equal(t, "OK", text("SET", "b", "short"))
	require.Equal(t, 3, number("DBSIZE"))
	require.Equal(t, "OK", text("FLUSHDB"))
	require.Zero(t, number("DBSIZE"))
}
