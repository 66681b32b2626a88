package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSalvageCommand: both superblocks and a leaf are damaged. All other records are recovered, and the keys of the
// leaf are reported.
func TestSalvageCommand(t *testing.T) {
	path := newPath(t)
	var items strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&items, " key %05d\n value %d\n", i, i)
	}
	succeedWith(t, "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"+items.String()+"DATA=END\n", "load", path)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	whole := path + ".whole"
	require.Contains(t, succeed(t, "salvage", path, whole), "2,000 records")
	require.Equal(t, succeed(t, "dump", path), succeed(t, "dump", whole))

	clear(file[:8192])
	for {
		i := strings.Index(string(file), "key 01000value 1000")
		if i < 0 {
			break
		}
		file[i] ^= 1
	}
	damaged, fresh := path+".damaged", path+".new"
	require.NoError(t, os.WriteFile(damaged, file, 0o600))
	r := execute(t, "", "check", damaged)
	require.Equal(t, exitError, r.code)
	require.Regexp(t, `(?m)^page \d+: keys from .*: damaged page \d+ .*: checksum$`, r.stderr)

	r = execute(t, "", "salvage", damaged, fresh, "--json")
	require.Equal(t, exitError, r.code)
	var result salvageResult
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &result))
	require.False(t, result.Whole)
	require.Zero(t, result.Superblocks)
	var from, to string
	for _, m := range result.Missing {
		if key, ok := m["from"].(string); ok {
			from, _ = key, m["page"]
			to, _ = m["to"].(string)
		}
	}
	require.True(t, from <= "key 01000" && "key 01000" < to, "%q to %q", from, to)
	missing := 0
	dump := succeed(t, "list", fresh)
	for i := range 2000 {
		key := fmt.Sprintf("key %05d", i)
		if !strings.Contains(dump, key) {
			require.True(t, from <= key && key < to, "%s is missing", key)
			missing++
		}
	}
	require.Equal(t, int64(2000-missing), result.Records)
	require.Positive(t, missing)
	succeed(t, "check", fresh)
	after, err := os.ReadFile(damaged)
	require.NoError(t, err)
	require.True(t, string(file) == string(after))

	fail(t, exitError, []string{"already exists", "overwrites nothing"}, "salvage", damaged, fresh)
	fail(t, exitError, []string{"not", "database"}, "salvage", writeFile(t, strings.Repeat("text ", 10000)), path+".other")
	fail(t, exitError, []string{"there is no"}, "salvage", path+".nowhere", path+".other")
	fail(t, exitUsage, []string{"--beside"}, "salvage", damaged, path+".other", "--beside")
	require.NoFileExists(t, path+".other")
	require.NoFileExists(t, path+".other.part")
}
