package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// loadKeys stores n keys that begin with their number modulo 10.
func loadKeys(t *testing.T, db string, n int) {
	var dump strings.Builder
	dump.WriteString(printHeader)
	for i := range n {
		name := "keep"
		if i%2 == 0 {
			name = "old.tmp"
		}
		fmt.Fprintf(&dump, " %d/%06d %s\n v\n", i%10, i, name)
	}
	dump.WriteString("DATA=END\n")
	succeedWith(t, dump.String(), "load", db)
}

func countKeys(t *testing.T, db string, args ...string) int {
	return strings.Count(succeed(t, append([]string{"list", db}, args...)...), "\n")
}

func TestDelRange(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	const n = 10 * (2*delBatchKeys + 3) // so that a prefix takes more than two transactions
	loadKeys(t, db, n)
	for _, step := range []struct {
		args string
		left int
	}{
		{"--prefix 3/", n / 10 * 9},
		{"--prefix 3/", n / 10 * 9},
		{"--from 5 --to 7", n / 10 * 7},
		{"--from 8/ --prefix 8/0000", n/10*7 - 10},
		{"--to ", n/10*7 - 10},
		{"--from z", n/10*7 - 10},
		{"--hex --prefix 30", n/10*6 - 10},
		{"--from 9", n/10*5 - 10},
		{"--to 2", n/10*4 - 10},
	} {
		before := countKeys(t, db)
		got := succeed(t, append([]string{"del", db, "--json"}, strings.Split(step.args, " ")...)...)
		require.Equal(t, step.left, countKeys(t, db), step.args)
		require.Equal(t, fmt.Sprintf("{\"deleted\":%d}\n", before-step.left), got)
	}
	require.Empty(t, succeed(t, "del", db, "--all"))
	require.Zero(t, countKeys(t, db))
}

func TestDelNull(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	loadKeys(t, db, 100)
	long := strings.Repeat("k", maxKeyBytes)
	for _, key := range []string{"", "a\nb", "\xff", long} {
		succeed(t, "put", db, "--file", writeFile(t, "v"), "--", key)
	}
	require.Empty(t, succeedWith(t, "\x00a\nb\x00\xff\x00"+long+"\x00", "del", db, "--null"))
	require.Equal(t, 100, countKeys(t, db))
	failWith(t, "0/000000 old.tmp\x00x\x00y\x00", exitNotFound, []string{"no key x, y in"}, "del", db, "-0")
	require.Equal(t, 99, countKeys(t, db))
	failWith(t, strings.Repeat("x\x00", 5000), exitNotFound, []string{"x, x and 4,990 more"}, "del", db, "--null")
	require.Empty(t, succeedWith(t, "", "del", db, "--null"))
	// Input that is not a list of keys deletes nothing.
	failWith(t, "1/000001 keep\x001/000011 keep", exitError, []string{"within key 2"}, "del", db, "--null")
	failWith(t, "1/000001 keep\x00"+long+"k\x00", exitUsage, []string{"key 2", "64 KiB"}, "del", db, "--null")
	require.Equal(t, 99, countKeys(t, db))
	fail(t, exitError, []string{"no database"}, "del", filepath.Join(t.TempDir(), "none"), "--null")
}

// TestDelExample runs the example of the help text with a list much larger than a pipe or the arguments of a
// command may be.
func TestDelExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "app.fdbm")
	const n = 150_000 // 2.6 MB of keys
	loadKeys(t, db, n)
	succeed(t, "put", db, "greeting", "hello")
	succeed(t, "put", db, "cache/1", "x")
	self := command(t).Path
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "flashdbm")))
	require.Contains(t, succeed(t, "del", "--help"), delExample)
	r := inShell(t, `cd "$1" && PATH="$1:$PATH" && set -e
`+delExample, dir)
	require.Equal(t, result{code: exitDone}, r)
	require.Equal(t, n/2, countKeys(t, db))
	require.Zero(t, countKeys(t, db, "--prefix", "cache/"))
	checkDatabase(t, db)
}

// TestEachKey: an error of the input is not taken for the end of the list.
func TestEachKey(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, "a\x00b")
		w.CloseWithError(os.ErrDeadlineExceeded)
	}()
	var keys []string
	err := eachKey(r, func(key []byte) error { keys = append(keys, string(key)); return nil })
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, []string{"a"}, keys)
}
