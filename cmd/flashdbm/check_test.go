package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCheckKeyspaces: check counts the records of all keyspaces, and reports each damage once, with its keys. Records
// of keyspaces are counted by reading their pages, which may fail.
func TestCheckKeyspaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.fdbm")
	succeed(t, "keyspaces", path, "--create", "a")
	var items strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&items, " key %05d\n value %d\n", i, i)
	}
	succeedWith(t, "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"+items.String()+"DATA=END\n", "load", path, "--keyspace", "a")
	require.Equal(t, path+": no problems in 2,000 records\n", succeed(t, "check", path))
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(file, []byte("value 1234"), []byte("VALUE 1234")), 0o600))
	r := execute(t, "", "check", path)
	require.Equal(t, exitError, r.code)
	require.Regexp(t, `^page \d+: keys from .*: damaged page \d+ .*\n.*problems found: 1;.*\n$`, r.stderr)
}

// TestCheckNamesKeys damages three leaves and compares the keys that check names with those that cannot be read.
func TestCheckNamesKeys(t *testing.T) {
	path := newPath(t)
	var items strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&items, " key %05d\n value %d\n", i, i)
	}
	succeedWith(t, "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"+items.String()+"DATA=END\n", "load", path)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	bad := 0
	for _, key := range []string{"key 00100value 100", "key 01000value 1000", "key 01999value 1999"} {
		for at := 0; ; {
			i := strings.Index(string(file[at:]), key)
			if i < 0 {
				break
			}
			file[at+i] ^= 1
			bad++
			at += i + 1
		}
	}
	require.GreaterOrEqual(t, bad, 3)
	damaged := path + ".damaged"
	require.NoError(t, os.WriteFile(damaged, file, 0o600))

	r := execute(t, "", "check", damaged)
	require.Equal(t, exitError, r.code)
	require.Empty(t, r.stdout)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, lines, 4)
	for _, line := range lines[:3] {
		require.Regexp(t, `^page \d+: keys (from|below) .*: read .*: damaged page \d+ \(byte \d+\): `, line)
	}
	require.Regexp(t, `^page \d+: keys from \S+ 01\d\d\d on: `, lines[2])

	r = execute(t, "", "check", damaged, "--json", "--hex")
	require.Equal(t, exitError, r.code)
	var result struct {
		OK       bool
		Records  int
		Problems []string
		Damage   []struct {
			Page     int
			From, To string `json:"-"`
			FromHex  string `json:"from_hex"`
			ToHex    string `json:"to_hex"`
			Error    string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &result))
	require.False(t, result.OK)
	require.Equal(t, 2000, result.Records)
	require.Len(t, result.Damage, 3)
	require.Len(t, result.Problems, 3)
	whole := func(i int) bool {
		key := fmt.Sprintf("%x", fmt.Sprintf("key %05d", i))
		for _, d := range result.Damage {
			require.NotZero(t, d.Page)
			if d.FromHex <= key && (d.ToHex == "" || key < d.ToHex) {
				return false
			}
		}
		return true
	}
	unread := 0
	for i := 0; i < 2000; i += 83 {
		r := execute(t, "", "get", damaged, fmt.Sprintf("key %05d", i))
		require.Equal(t, whole(i), r.code == exitDone, "key %05d", i)
		if r.code != exitDone {
			unread++
		}
	}
	require.NotZero(t, unread)
	require.Less(t, unread, 20)
}
