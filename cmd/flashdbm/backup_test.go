package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
)

// TestBackupCommand writes a backup to a file and to a pipe, restores both, and compares the contents.
func TestBackupCommand(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "apple", "red")
	dir := t.TempDir()
	file := filepath.Join(dir, "backup")
	var result backupResult
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "backup", db, "--file", file, "--json")), &result))
	status, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, status.Size(), result.Bytes)
	fail(t, exitError, []string{"file exists"}, "backup", db, "--file", file)

	restored := filepath.Join(dir, "restored")
	succeed(t, "restore", restored, "--file", file)
	require.Equal(t, "apple\n", succeed(t, "list", restored))
	fail(t, exitError, []string{"exists"}, "restore", restored, "--file", file)
	require.Equal(t, "apple\n", succeed(t, "list", file), "a backup is a database")

	pipe := execute(t, "", "backup", db)
	require.Zero(t, pipe.code, pipe.stderr)
	require.Regexp(t, `^token [a-z2-7]+\n$`, pipe.stderr)
	piped := pipe.stdout
	whole := execute(t, piped, "restore", filepath.Join(dir, "piped"))
	require.Zero(t, whole.code, whole.stderr)
	require.Equal(t, "apple\n", succeed(t, "list", filepath.Join(dir, "piped")))

	short := execute(t, piped[:len(piped)-1], "restore", filepath.Join(dir, "short"))
	require.Equal(t, exitError, short.code)
	require.Contains(t, short.stderr, "damaged backup")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "nothing is left of a restore that failed")

	succeed(t, "put", db, "banana", "yellow")
	increment := filepath.Join(dir, "increment")
	require.Contains(t, succeed(t, "backup", db, "--since", result.Token, "--file", increment), ", token ")
	require.Contains(t, succeed(t, "restore", filepath.Join(dir, "both"), "--file", file, "--increment", increment), "both: token ")
	require.Equal(t, "apple\nbanana\n", succeed(t, "list", filepath.Join(dir, "both")))
	fail(t, exitError, []string{"damaged backup"}, "restore", filepath.Join(dir, "wrong"), "--file", increment)
	fail(t, exitUsage, []string{"is not the token of a backup"}, "backup", db, "--since", "yesterday", "--file", filepath.Join(dir, "x"))
	fail(t, exitUsage, []string{"--since"}, "backup", db, "--since", "", "--file", filepath.Join(dir, "x"))
	fail(t, exitError, []string{"of another database"}, "backup", restored, "--since", result.Token, "--file", filepath.Join(dir, "x"))

	fail(t, exitUsage, []string{"--rate wants a number of bytes"}, "backup", db, "--file", filepath.Join(dir, "x"), "--rate", "fast")
	fail(t, exitUsage, []string{"give --file"}, "backup", db, "--json")
	fail(t, exitUsage, []string{"is the database itself"}, "backup", db, "--file", db)
	fail(t, exitError, []string{"no such file"}, "backup", db, "--file", filepath.Join(dir, "absent", "x"))
}

// TestBackupCommandBeside takes a backup of a database that is open for writing.
func TestBackupCommandBeside(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	db, err := dbm.Open(path, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Put([]byte("apple"), []byte("red")))
	dir := t.TempDir()
	fail(t, exitError, []string{"locked"}, "backup", path, "--file", filepath.Join(dir, "backup"))
	succeed(t, "backup", path, "--beside", "--file", filepath.Join(dir, "backup"))
	succeed(t, "restore", filepath.Join(dir, "restored"), "--file", filepath.Join(dir, "backup"))
	require.Equal(t, "apple\n", succeed(t, "list", filepath.Join(dir, "restored")))
}

// TestBackupRate measures the time of a backup that is limited to a rate.
func TestBackupRate(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "apple", "red")
	begin := time.Now()
	succeed(t, "backup", db, "--rate", "512KiB", "--file", filepath.Join(t.TempDir(), "backup"))
	require.GreaterOrEqual(t, time.Since(begin), 200*time.Millisecond, "128 KiB at 512 KiB a second")
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "4096B": 4096, "1k": 1024, "1KiB": 1024, "1kb": 1000, "1.5 MiB": 3 << 19, "20MB": 20_000_000, "2G": 2 << 30, "1TiB": 1 << 40,
	} {
		n, err := parseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "x", "MiB", "-1", "1 mile", "1e30", "NaN", "1KiBx", "1 K iB"} {
		_, err := parseBytes(text)
		require.Error(t, err, text)
	}
}
