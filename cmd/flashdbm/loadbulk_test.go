package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadBulk loads sorted and unsorted dumps with --bulk, from a file and through a pipe, into an empty database
// and into one with records.
func TestLoadBulk(t *testing.T) {
	t.Parallel()
	source := newPath(t)
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, "{\"key\": \"key %d\", \"value\": \"%s\"}\n", i*7919%2000, strings.Repeat("v", i))
	}
	unordered := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(unordered, []byte(lines.String()), 0o600))
	var result loadResult
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "load", source, "--bulk", "--json-lines", "--file", unordered, "--json")), &result))
	require.EqualValues(t, 2000, result.Records)
	require.Contains(t, succeed(t, "check", source), "no problems in 2,000 records")

	dump := succeed(t, "dump", source)
	file := filepath.Join(t.TempDir(), "dump")
	require.NoError(t, os.WriteFile(file, []byte(dump), 0o600))
	for _, kind := range []string{"file", "pipe"} {
		path := newPath(t)
		if kind == "file" {
			succeed(t, "load", path, "--bulk", "--file", file)
		} else {
			r := execute(t, dump, "load", path, "--bulk")
			require.Zero(t, r.code, r.stderr)
		}
		require.Equal(t, dump, succeed(t, "dump", path), kind)
		succeed(t, "put", path, "more", "1")
		succeed(t, "load", path, "--bulk", "--file", file)
		require.Contains(t, succeed(t, "check", path), "no problems in 2,001 records")
	}

	cut := execute(t, dump[:len(dump)/2], "load", filepath.Join(t.TempDir(), "new"), "--bulk")
	require.Equal(t, exitError, cut.code)
	half := newPath(t)
	require.Equal(t, exitError, execute(t, dump[:len(dump)/2], "load", half, "--bulk").code)
	require.Contains(t, succeed(t, "check", half), "no problems in 0 records")
	fail(t, exitUsage, []string{"[atomic bulk]"}, "load", half, "--bulk", "--atomic")
}

// TestLoadBulkKeyspace loads dumps with --bulk into a keyspace: in addition to its records, in place of them, and
// in place of the records of the default keyspace.
func TestLoadBulkKeyspace(t *testing.T) {
	t.Parallel()
	dumpOf := func(keys ...string) string {
		var b strings.Builder
		b.WriteString(printHeader)
		for _, k := range keys {
			fmt.Fprintf(&b, " %s\n v%s\n", k, k)
		}
		return b.String() + "DATA=END\n"
	}
	path := newPath(t)
	in := func(args ...string) []string {
		return append([]string{"load", path, "--bulk", "--keyspace", "a"}, args...)
	}
	list := func(args ...string) string { return succeed(t, append([]string{"list", path}, args...)...) }
	succeed(t, "put", path, "k", "1")
	failWith(t, dumpOf("a"), exitError, []string{"no such keyspace"}, in()...)
	succeedWith(t, dumpOf("b", "a"), in("--replace")...)
	require.Equal(t, "a\nb\n", list("--keyspace", "a"))
	succeedWith(t, dumpOf("c"), in()...)
	require.Equal(t, "a\nb\nc\n", list("--keyspace", "a"))
	succeed(t, in("--replace", "--file", writeFile(t, dumpOf("x", "y")))...)
	require.Equal(t, "x\nvx\ny\nvy\n", strings.ReplaceAll(list("--keyspace", "a", "--values"), "\t", "\n"))
	require.Equal(t, "a\t2\n", succeed(t, "keyspaces", path))
	failWith(t, strings.TrimSuffix(dumpOf("z"), "DATA=END\n"), exitError, []string{"DATA=END"}, in("--replace")...)
	require.Equal(t, "x\ny\n", list("--keyspace", "a"), "all or nothing")
	require.Equal(t, "k\n", list())
	succeedWith(t, dumpOf("l", "m"), "load", path, "--bulk", "--replace")
	require.Equal(t, "l\nm\n", list())
	require.Equal(t, "x\ny\n", list("--keyspace", "a"))
	fail(t, exitUsage, []string{"--bulk"}, "load", path, "--replace")
	succeed(t, "check", path)
}
