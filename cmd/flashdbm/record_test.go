package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allBytes contains every byte, including line ends and escapes.
var allBytes = func() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

func TestPutGetDel(t *testing.T) {
	db := newPath(t)
	require.Empty(t, succeed(t, "put", db, "greeting", "good morning"))
	require.Equal(t, "good morning", succeed(t, "get", db, "greeting"), "no line end into a pipe")
	succeed(t, "put", db, "greeting", "good evening")
	require.Equal(t, "good evening", succeed(t, "get", db, "greeting"))
	succeed(t, "has", db, "greeting")
	succeed(t, "del", db, "greeting")
	fail(t, exitNotFound, []string{"no key greeting in " + db}, "get", db, "greeting")
	fail(t, exitNotFound, []string{"no key greeting in " + db}, "del", db, "greeting")
	require.Equal(t, result{code: exitNotFound}, execute(t, "", "has", db, "greeting"))
}

func TestEmptyKeyAndValue(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "", "")
	require.Empty(t, succeed(t, "get", db, ""))
	succeed(t, "has", db, "")
	require.Equal(t, "\"\"\t\"\"\n", succeed(t, "list", db, "--values"))
	succeed(t, "del", db, "")
	fail(t, exitNotFound, []string{`no key ""`}, "get", db, "")
}

func TestKeyThatLooksLikeAFlag(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", "--", db, "--hex", "-")
	require.Equal(t, "-", succeed(t, "get", db, "--", "--hex"))
}

func TestBinaryValues(t *testing.T) {
	t.Parallel()
	big := strings.Repeat(allBytes, 2<<10) // 512 KiB, more than all buffers
	for name, value := range map[string]string{"all bytes": allBytes, "empty": "", "512 KiB": big} {
		t.Run(name, func(t *testing.T) {
			db := newPath(t)
			succeedWith(t, value, "put", db, "stdin")
			succeedWith(t, value, "put", db, "dash", "--file", "-")
			succeed(t, "put", db, "file", "--file", writeFile(t, value))
			for _, key := range []string{"stdin", "dash", "file"} {
				require.Equal(t, value, succeed(t, "get", db, key))
				require.Equal(t, value, succeed(t, "get", db, key, "--file", "-"))
				out := filepath.Join(t.TempDir(), "out")
				require.Empty(t, succeed(t, "get", db, key, "--file", out))
				require.Equal(t, value, readFile(t, out))
			}
		})
	}
}

func TestNotations(t *testing.T) {
	t.Parallel()
	db := newPath(t)
	succeed(t, "put", db, "--hex", "00FF", "0a0b")
	require.Equal(t, "0a0b\n", succeed(t, "get", db, "--hex", "00ff"))
	require.Equal(t, "Cgs=\n", succeed(t, "get", db, "--base64", "AP8="))
	require.Equal(t, "\n\v", succeed(t, "get", db, "--hex", "00ff", "--file", "-"))
	require.JSONEq(t, `{"key_hex": "00ff", "value_hex": "0a0b"}`, succeed(t, "get", db, "--json", "--hex", "00ff"))
	require.JSONEq(t, `{"key_base64": "AP8=", "value_base64": "Cgs="}`, succeed(t, "get", db, "--json", "--base64", "AP8="))

	succeed(t, "put", db, "--base64", "a2V5", "PGI+JjwvYj4=")
	require.Equal(t, "<b>&</b>", succeed(t, "get", db, "key"))
	require.Equal(t, `{"key":"key","value":"<b>&</b>"}`+"\n", succeed(t, "get", db, "--json", "key"))

	succeed(t, "del", db, "--hex", "00ff")
	fail(t, exitNotFound, []string{"no key 00ff"}, "get", db, "--hex", "00ff")
	fail(t, exitNotFound, []string{`no key "\xff"`}, "del", db, "\xff")
}

func TestGetFileLeavesNothingWithoutKey(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	out := filepath.Join(t.TempDir(), "out")
	fail(t, exitNotFound, nil, "get", db, "b", "--file", out)
	require.NoFileExists(t, out)
	fail(t, exitError, []string{"no such file"}, "get", db, "a", "--file", filepath.Join(out, "below"))
}

func TestHasJSON(t *testing.T) {
	db := newPath(t)
	succeed(t, "put", db, "a", "1")
	require.Equal(t, "{\"found\":true}\n", succeed(t, "has", db, "a", "--json"))
	require.Equal(t, result{exitNotFound, "{\"found\":false}\n", ""}, execute(t, "", "has", db, "b", "--json"))
}

func TestDelSeveral(t *testing.T) {
	db := newPath(t)
	for _, key := range []string{"a", "b", "c"} {
		succeed(t, "put", db, key, "1")
	}
	fail(t, exitNotFound, []string{"no key x, y z in"}, "del", db, "a", "x", "c", "y z")
	require.Equal(t, "b\n", succeed(t, "list", db))
}

// Commands that do not store anything must not create a database when its name is misspelled.
func TestNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing.fdbm")
	for _, args := range [][]string{
		{"get", path, "a"}, {"has", path, "a"}, {"del", path, "a"}, {"list", path},
		{"stat", path}, {"check", path}, {"dump", path},
	} {
		fail(t, exitError, []string{"no database at " + path, "flashdbm put"}, args...)
		require.NoFileExists(t, path, "%q", args)
	}
}

func TestNotADatabase(t *testing.T) {
	path := writeFile(t, strings.Repeat("not a database\n", 1000))
	for _, args := range [][]string{{"get", path, "a"}, {"put", path, "a", "1"}, {"list", path}} {
		fail(t, exitError, []string{path, "check that this is a flashdbm database"}, args...)
	}
	fail(t, exitError, nil, "get", t.TempDir(), "a")
}
