package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Records that expire are put, shown, listed, dumped and loaded.
func TestTTL(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "stays", "1")
	require.Equal(t, "forever\n", succeed(t, "ttl", db, "stays"))
	require.Equal(t, "{\"expires\":false}\n", succeed(t, "ttl", db, "stays", "--json"))
	succeed(t, "put", db, "session", "ann", "--ttl", "2h")
	succeedWith(t, "from a pipe", "put", db, "piped", "--ttl", "2h")
	succeed(t, "keyspaces", db, "--create", "a")
	succeed(t, "put", db, "k", "v", "--keyspace", "a", "--ttl", "2h")
	left, err := time.ParseDuration(strings.TrimSpace(succeed(t, "ttl", db, "k", "--keyspace", "a")))
	require.NoError(t, err)
	require.InDelta(t, 2*time.Hour.Seconds(), left.Seconds(), 60)
	var answer struct {
		Expires bool
		Seconds float64
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "ttl", db, "session", "--json")), &answer))
	require.True(t, answer.Expires)
	require.InDelta(t, 2*time.Hour.Seconds(), answer.Seconds, 60)
	require.Equal(t, exitNotFound, execute(t, "", "ttl", db, "none").code)
	fail(t, exitUsage, []string{"more than 0"}, "put", db, "k", "v", "--ttl", "0s")
	failWith(t, strings.Repeat("long", firstBytes/4), exitError, []string{"expires"}, "put", db, "long", "--ttl", "1h")

	lines := succeed(t, "dump", db, "--json-lines")
	require.Equal(t, 2, strings.Count(lines, `"expires":"`))
	require.Equal(t, 2, strings.Count(succeed(t, "list", db, "--values", "--json"), `"expires":"`))
	require.Contains(t, succeed(t, "get", db, "session", "--json"), `"expires":"`)
	require.NotContains(t, succeed(t, "get", db, "stays", "--json"), "expires")
	lines += `{"key": "over", "value": "1", "expires": "2001-02-03T04:05:06Z"}` + "\n"
	copied := newPath(t)
	require.Contains(t, succeedWith(t, lines, "load", copied, "--json-lines", "--json"), `"records":3,`, "without the expired one")
	require.Equal(t, "piped\nsession\nstays\n", succeed(t, "list", copied))
	of := func(path string) time.Duration {
		left, err := time.ParseDuration(strings.TrimSpace(succeed(t, "ttl", path, "session")))
		require.NoError(t, err)
		return left
	}
	require.InDelta(t, of(db).Seconds(), of(copied).Seconds(), 10)
	require.Equal(t, "forever\n", succeed(t, "ttl", copied, "stays"))
	other := newPath(t)
	failWith(t, lines, exitError, []string{"--atomic"}, "load", other, "--json-lines", "--atomic")
	failWith(t, lines, exitError, []string{"--bulk"}, "load", other, "--json-lines", "--bulk")
	succeed(t, "put", other, "k", "v", "--ttl", "1h")
	succeedWith(t, lines, "load", other, "--json-lines", "--atomic")
	require.Equal(t, "k\npiped\nsession\nstays\n", succeed(t, "list", other))

	succeed(t, "put", db, "soon", "gone", "--ttl", "1ms")
	require.Eventually(t, func() bool { return execute(t, "", "has", db, "soon").code == exitNotFound }, time.Minute, time.Millisecond)
	require.NotContains(t, succeed(t, "list", db), "soon")
	require.Contains(t, succeed(t, "dump", db, "--print"), fmt.Sprint(" session\n ann\n"))
	succeed(t, "check", db)
}

// The time of a record that expires stays the same, to the millisecond, however often it is dumped and loaded.
func TestExpiresExactly(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 50 {
		fmt.Fprintf(&lines, `{"expires":"2099-01-02T03:04:05.%03dZ","key":"%02d","value":"v"}`+"\n", i*10+1, i)
	}
	want := lines.String()
	for range 3 {
		db := newPath(t)
		succeedWith(t, want, "load", db, "--json-lines")
		require.Equal(t, want, succeed(t, "dump", db, "--json-lines"))
		require.Equal(t, want, succeed(t, "list", db, "--json", "--values"))
		require.Equal(t, strings.SplitAfter(want, "\n")[20], succeed(t, "get", db, "20", "--json"))
	}
}
