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

// TestLoadBulk loads dumps with --bulk: in order and not, from a file and through a pipe, into an empty database and into one with records.
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
