package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyspaces(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "k", "default")
	require.Empty(t, succeed(t, "keyspaces", db))
	fail(t, exitError, []string{"no such keyspace", "has none yet"}, "put", db, "k", "1", "--keyspace", "a")
	fail(t, exitError, []string{"no such keyspace"}, "list", db, "--keyspace", "a")
	succeed(t, "keyspaces", db, "--create", "a")
	fail(t, exitError, []string{"exists"}, "keyspaces", db, "--create", "a")
	fail(t, exitError, []string{`no such keyspace: "b"; "flashdbm keyspaces" prints and makes them`}, "get", db, "k", "--keyspace", "b")
	succeed(t, "put", db, "k", "in a", "--keyspace", "a")
	succeedWith(t, strings.Repeat("long", firstBytes/4), "put", db, "long", "--keyspace", "a")
	require.Equal(t, "in a", succeed(t, "get", db, "k", "--keyspace", "a"))
	require.Equal(t, "default", succeed(t, "get", db, "k"))
	require.Equal(t, "k\nlong\n", succeed(t, "list", db, "--keyspace", "a"))
	require.Equal(t, "a\t2\n", succeed(t, "keyspaces", db))
	require.Equal(t, db+": no problems in 3 records\n", succeed(t, "check", db))
	fail(t, exitUsage, []string{"is not empty"}, "del", db, "--keyspace", "", "--all") // as of a variable that is not set
	succeed(t, "has", db, "long", "--keyspace", "a")
	succeed(t, "del", db, "long", "--keyspace", "a")
	require.Equal(t, exitNotFound, execute(t, "", "has", db, "long", "--keyspace", "a").code)

	dump := succeed(t, "dump", db, "--keyspace", "a", "--print")
	require.Equal(t, "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n k\n in a\nDATA=END\n", dump)
	succeed(t, "keyspaces", db, "--create", "b")
	succeedWith(t, dump, "load", db, "--keyspace", "b")
	require.Equal(t, "k\tin a\n", succeed(t, "list", db, "--keyspace", "b", "--values"))

	succeed(t, "keyspaces", db, "--rename", "b", "--to", "tab\there")
	require.Equal(t, "{\"name\":\"a\",\"records\":1}\n{\"name\":\"tab\\there\",\"records\":1}\n", succeed(t, "keyspaces", db, "--json"))
	require.Equal(t, "a\t1\n\"tab\\there\"\t1\n", succeed(t, "keyspaces", db))
	fail(t, exitUsage, []string{"rename to"}, "keyspaces", db, "--rename", "a")
	fail(t, exitError, []string{"no such keyspace"}, "keyspaces", db, "--drop", "b")
	succeed(t, "keyspaces", db, "--drop", "a")
	succeed(t, "del", db, "--keyspace", "tab\there", "--all")
	require.Equal(t, "\"tab\\there\"\t0\n", succeed(t, "keyspaces", db))
	require.Equal(t, "k\n", succeed(t, "list", db))
	require.Contains(t, succeed(t, "stat", db, "--json"), `"records":4,`, "k, the mark, the last number, a name: nothing is left of what was dropped")

	backup, restored := filepath.Join(t.TempDir(), "backup"), newPath(t)
	succeed(t, "backup", db, "--file", backup)
	succeed(t, "restore", restored, "--file", backup)
	require.Equal(t, "\"tab\\there\"\t0\n", succeed(t, "keyspaces", restored))
	require.Equal(t, "k\n", succeed(t, "list", restored))
	succeed(t, "check", restored)
}

// A dump of several databases is loaded into keyspaces and dumped again, from a file and through a pipe, and so is
// one written by mdb_dump -a.
func TestDumpOfKeyspaces(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "k", "default")
	for _, name := range []string{"a", "b c"} {
		succeed(t, "keyspaces", db, "--create", name)
		succeed(t, "put", db, "k", "in "+name, "--keyspace", name)
		succeedWith(t, strings.Repeat("long", heldBytes/2), "put", db, "\x01", "--keyspace", name)
	}
	succeed(t, "keyspaces", db, "--create", "empty")
	dump := succeed(t, "dump", db, "--keyspaces")
	require.Equal(t, 4, strings.Count(dump, "DATA=END\n"))
	require.Contains(t, dump, "database=b c\n")
	for _, args := range [][]string{{"--file", writeFile(t, dump)}, {"--atomic"}, {}} {
		copied := newPath(t)
		succeedWith(t, dump, append([]string{"load", copied, "--keyspaces"}, args...)...)
		require.Equal(t, "a\t2\nb c\t2\n", succeed(t, "keyspaces", copied), "what is empty is not made")
		require.Equal(t, "in b c", succeed(t, "get", copied, "k", "--keyspace", "b c"))
		require.Equal(t, succeed(t, "dump", db, "--keyspace", "a"), succeed(t, "dump", copied, "--keyspace", "a"))
		require.Equal(t, "k\tdefault\n", succeed(t, "list", copied, "--values"))
		succeed(t, "check", copied)
	}
	other := newPath(t)
	failWith(t, dump, exitError, []string{"--keyspaces"}, "load", other, "--atomic")
	failWith(t, strings.TrimSuffix(dump, "DATA=END\n"), exitError, []string{"ends without DATA=END"}, "load", other, "--keyspaces")
	foreign := newPath(t)
	succeed(t, "load", foreign, "--keyspaces", "--file", filepath.Join("testdata", "lmdb09-several.dump"))
	require.NotEmpty(t, succeed(t, "keyspaces", foreign))

	succeed(t, "keyspaces", db, "--create", "two\nlines")
	fail(t, exitError, []string{"does not fit a line"}, "dump", db, "--keyspaces")
	for _, args := range [][]string{{"dump", db, "--keyspaces", "--keyspace", "a"}, {"load", db, "--keyspaces", "--bulk"}, {"dump", db, "--keyspaces", "--json-lines"}} {
		fail(t, exitUsage, []string{"keyspaces"}, args...)
	}
}
