package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListBounds(t *testing.T) {
	t.Parallel()
	keys := []string{"", "a", "a/", "a/b", "a/c", "a0", "b", "b\xff", "b\xff\xff", "c", "\xff", "\xff\xff"}
	db := newPath(t)
	for _, key := range keys {
		succeed(t, "put", db, "--", key, "v")
	}
	for _, args := range [][]string{
		{}, {"--reverse"}, {"--limit", "3"}, {"--limit", "3", "--reverse"}, {"--limit", "0"}, {"--limit", "99"},
		{"--from", "a/"}, {"--from", "a/", "--to", "b"}, {"--to", "b", "--reverse"}, {"--from", "x", "--to", "b"},
		{"--to", ""}, {"--from", ""}, {"--prefix", ""},
		{"--prefix", "a"}, {"--prefix", "a/", "--reverse"}, {"--prefix", "b\xff"}, {"--prefix", "\xff"},
		{"--prefix", "a", "--from", "a/c"}, {"--prefix", "a", "--to", "a/c"}, {"--prefix", "a", "--from", "", "--to", "zz"},
		{"--prefix", "a", "--from", "b"}, {"--prefix", "b", "--to", "a"}, {"--prefix", "a", "--limit", "2", "--reverse"},
	} {
		got := succeed(t, append([]string{"list", db, "--null"}, args...)...)
		require.Equal(t, strings.Join(selected(keys, args), ""), strings.ReplaceAll(got, "\x00", ""), "%q", args)
		require.Equal(t, len(selected(keys, args)), strings.Count(got, "\x00"), "%q", args)
	}
}

// selected is the model: the keys, of the given sorted ones, that list must print.
func selected(keys, args []string) (chosen []string) {
	from, to, prefix, limit := "", "\xff\xff\xff", "", 0
	for i, arg := range args {
		switch arg {
		case "--from":
			from = args[i+1]
		case "--to":
			to = args[i+1]
		case "--prefix":
			prefix = args[i+1]
		case "--limit":
			limit, _ = strconv.Atoi(args[i+1])
		}
	}
	for _, key := range keys {
		if key >= from && key < to && strings.HasPrefix(key, prefix) {
			chosen = append(chosen, key)
		}
	}
	if slices.Contains(args, "--reverse") {
		slices.Reverse(chosen)
	}
	if limit > 0 && len(chosen) > limit {
		chosen = chosen[:limit]
	}
	return chosen
}

func TestListForms(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "plain", "1\t2")
	succeed(t, "put", db, "--hex", "ff00", "e29c93")
	require.Equal(t, "plain\n\"\\xff\\x00\"\n", succeed(t, "list", db))
	require.Equal(t, "plain\t\"1\\t2\"\n\"\\xff\\x00\"\t✓\n", succeed(t, "list", db, "--values"))
	require.Equal(t, "706c61696e\nff00\n", succeed(t, "ls", db, "--hex"))
	require.Equal(t, "706c61696e\n", succeed(t, "list", db, "--hex", "--to", "71"))
	require.Equal(t, "cGxhaW4=\tMQky\n/wA=\t4pyT\n", succeed(t, "list", db, "--base64", "--values"))
	require.Equal(t, "plain\x00\xff\x00\x00", succeed(t, "list", db, "-0"))
	require.Equal(t, `{"key":"plain"}`+"\n"+`{"key_base64":"/wA="}`+"\n", succeed(t, "list", db, "--json"))

	var record map[string]string
	lines := strings.Split(succeed(t, "list", db, "--json", "--values"), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &record))
	require.Equal(t, map[string]string{"key_base64": "/wA=", "value": "✓"}, record)
}

func TestQuoted(t *testing.T) {
	for _, test := range []struct{ key, shown string }{
		{"a", "a"}, {"a b", "a b"}, {"naïve ✓", "naïve ✓"}, {`back\slash`, `back\slash`}, {`in"side`, `in"side`},
		{"", `""`}, {" a", `" a"`}, {"a ", `"a "`}, {`"a"`, `"\"a\""`}, {"a\nb", `"a\nb"`}, {"a\tb", `"a\tb"`},
		{"\x1b[2J", `"\x1b[2J"`}, {"\xff", `"\xff"`}, {"\u202e", `"\u202e"`}, {"\u00a0", `"\u00a0"`}, {"\ufffd", "\ufffd"},
	} {
		require.Equal(t, test.shown, quoted([]byte(test.key)))
	}
}

func FuzzQuoted(f *testing.F) {
	f.Add("")
	f.Add("a\n\"b\"")
	f.Add("\xff\x1b ")
	f.Fuzz(func(t *testing.T, key string) {
		shown := quoted([]byte(key))
		require.False(t, strings.ContainsAny(shown, "\n\r\t\x1b\x00"))
		if strings.HasPrefix(shown, `"`) {
			back, err := strconv.Unquote(shown)
			require.NoError(t, err)
			shown = back
		}
		require.Equal(t, key, shown)
	})
}

func TestPrefixEnd(t *testing.T) {
	require.Nil(t, prefixEnd(nil))
	require.Nil(t, prefixEnd([]byte("\xff\xff")))
	require.Equal(t, []byte("b"), prefixEnd([]byte("a")))
	require.Equal(t, []byte("b"), prefixEnd([]byte("a\xff\xff")))
	given := []byte("ab")
	require.Equal(t, []byte("ac"), prefixEnd(given))
	require.Equal(t, []byte("ab"), given)
}

func TestUnits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 20: "1.0 MiB",
		5 << 30: "5.0 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		require.Equal(t, want, formatBytes(n))
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -999: "-999", -1000: "-1,000"} {
		require.Equal(t, want, formatCount(n))
	}
	for n, want := range map[int64]string{1: "0s", 1234: "1.23µs", 12_345_678: "12.35ms", 1_234_567_890: "1.23s", 754e11: "20h56m40s"} {
		require.Equal(t, want, formatDuration(nanoseconds(n)))
	}
}
