package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInspect shows each kind of part of a small database, and of one with a damaged root.
func TestInspect(t *testing.T) {
	path := newPath(t)
	succeed(t, "put", path, "apple", "red")
	succeed(t, "put", path, "long", strings.Repeat("long ", 5000))
	require.Contains(t, succeed(t, "inspect", path), "newest checkpoint\n")
	for args, want := range map[string]string{
		"superblocks":             "superblock in page 1\n",
		"page 3":                  "  node\n    level: 0\n    n: 0\n",
		"page 2":                  "  header\n    flags: none\n    segment: 0\n    successor: 1\n",
		"node 0xc000000000000001": "record 0: key apple, value red\n",
		"key apple":               "  record 0: key apple, value red\n",
		"key pear":                "record: none with this key",
		"segment 0":               "  page 3: kind tree page, group 1, group kind page group, name 0xc000000000000001, root of tree 1, last true\n",
		"log --from 2 --limit 1":  "group 2\n  kind: part of a checkpoint\n  whole: true\n",
		"table":                   "  entry 0: name 0xc000000000000001, root of tree 1, address ",
		"space":                   "  segment 0: state in use, ",
		"key apple --hex":         "",
	} {
		if want == "" {
			fail(t, exitUsage, []string{"hexadecimal"}, append([]string{"inspect", path}, strings.Fields(args)...)...)
			continue
		}
		require.Contains(t, succeed(t, append([]string{"inspect", path}, strings.Fields(args)...)...), want, args)
	}
	var object struct {
		Part  string
		Parts []struct {
			Part       string
			Key, Value string
			Bytes      int `json:"value_length"`
		}
	}
	lines := strings.Split(strings.TrimSpace(succeed(t, "inspect", path, "key", "long", "--json")), "\n")
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &object))
	require.Equal(t, "long", object.Parts[0].Key)
	require.Equal(t, 25000, object.Parts[0].Bytes)

	for args, says := range map[string]string{
		"nothing":         "superblocks, page, node",
		"page":            "which one",
		"page one":        "no number",
		"table 3":         "no operand",
		"page 3 --from 4": "--from",
		"log --limit -1":  "--limit",
		"page 3 --beside": "--beside",
	} {
		fail(t, exitUsage, []string{says}, append([]string{"inspect", path}, strings.Fields(args)...)...)
	}
	for _, what := range []string{"page", "node"} { // nothing is wrong with the file
		r := execute(t, "", "inspect", path, what, "1000000")
		require.Equal(t, exitError, r.code)
		require.Contains(t, r.stderr, "there is no "+what)
		require.NotContains(t, r.stderr, "the file is damaged")
	}
	fail(t, exitError, []string{"there is no segment"}, "inspect", path, "segment", "1000000")

	file, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := 3 * 4096; at < len(file); at += 4096 {
		if file[at+4] == 1 { // tree pages
			file[at+100] ^= 1
		}
	}
	path += ".damaged" // newPath's database is checked at the end
	require.NoError(t, os.WriteFile(path, file, 0o600))
	require.Contains(t, succeed(t, "inspect", path, "key", "apple"), "  damaged: ")
	require.Contains(t, succeed(t, "inspect", path, "page", "3"), "checksum: wrong")
}
