package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/shard"
)

func TestSettings(t *testing.T) {
	env := func(pairs ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for _, p := range pairs {
				if value, ok := strings.CutPrefix(p, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}
	}
	c, err := parse([]string{"--dir", "d", "--max-file", "5"}, env("FLASHDBMD_MAX_FILE=7", "FLASHDBMD_DURABILITY=async"), nil)
	require.NoError(t, err)
	assert.Equal(t, shard.Async, c.durability)
	assert.Equal(t, int64(5<<20), c.maxFile, "a flag comes before the environment")
	assert.Equal(t, "d/node.sock", c.socket)
	for wrong, args := range map[string][]string{
		"--dir: a directory is needed":             {},
		"--durability: \"sometimes\"":              {"--dir", "d", "--durability", "sometimes"},
		"--full: \"sometimes\" is none":            {"--durability", "memory", "--full", "sometimes"},
		"--full: evict is for":                     {"--dir", "d", "--full", "evict"},
		"--shards: -1 is out of range":             {"--dir", "d", "--shards", "-1"},
		"--memory: -4 is out of range":             {"--dir", "d", "--memory", "-4"},
		"certificate and key come together":        {"--dir", "d", "--tls-key", "k"},
		"--verbs: set a password":                  {"--dir", "d", "--verbs", "127.0.0.1:1"},
		"--tcp: set a password":                    {"--dir", "d", "--tcp", "127.0.0.1:1"},
		"--resp: 0.0.0.0:1 can be reached":         {"--dir", "d", "--resp", "0.0.0.0:1"},
		"--resp: :6379 can be reached":             {"--dir", "d", "--resp", ":6379"},
		"--http: 10.0.0.1:1 can be reached":        {"--dir", "d", "--resp", "127.0.0.1:1", "--http", "10.0.0.1:1", "--password", "p"},
		"flag provided but not defined: -nonsense": {"--nonsense"},
		"\"more\" is not a setting":                {"--dir", "d", "more"},
	} {
		_, err := parse(args, env(), nil)
		require.ErrorIs(t, err, errUsage, "%v", args)
		assert.Contains(t, err.Error(), wrong)
	}
	_, err = parse([]string{"--dir", "d"}, env("FLASHDBMD_SHARDS=two"), nil)
	require.ErrorIs(t, err, errUsage)
	assert.Contains(t, err.Error(), "FLASHDBMD_SHARDS")
	var out bytes.Buffer
	_, err = parse([]string{"--help"}, env(), &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	assert.Contains(t, out.String(), "-durability")
}

// TestSettingsFile: an error about a setting in a file names its line.
func TestSettingsFile(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	path := filepath.Join(t.TempDir(), "flashdbmd.toml")
	read := func(text string, args ...string) (*config, error) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return parse(append([]string{"--config", path}, args...), none, nil)
	}
	c, err := read("# a node\ndir = \"d\"\nmax-file = 7 # MiB\ndurability = 'async'\npassword = \"p\"\n", "--max-file", "5")
	require.NoError(t, err)
	assert.Equal(t, shard.Async, c.durability)
	assert.Equal(t, int64(5<<20), c.maxFile, "a flag comes before the file")
	assert.Equal(t, "d/node.sock", c.socket)
	assert.Equal(t, "p", c.password)

	t.Run("environment", func(t *testing.T) {
		c, err := parse(nil, func(name string) (string, bool) {
			v, ok := map[string]string{"FLASHDBMD_CONFIG": path, "FLASHDBMD_MAX_FILE": "9"}[name]
			return v, ok
		}, nil)
		require.NoError(t, err)
		assert.Equal(t, int64(9<<20), c.maxFile, "the environment comes before the file")
		assert.Equal(t, "d/node.sock", c.socket)
	})
	for _, x := range []struct{ text, wrong string }{
		{"dir = \"d\"\nmemory = -4\n", ":2: memory: -4 is out of range"},
		{"\n\ndir = \"d\"\nshards = \"two\"\n", ":4: shards: \"two\" is not what this setting takes"},
		{"dir = \"d\"\nshards = 2.5\n", ":2: shards: want a string in quotes, a whole number"},
		{"dir = \"d\"\n\nport = 6379\n", ":3: port: there is no such setting"},
		{"dir = \"d\"\n[resp]\nport = 6379\n", ":2: resp: want a string"},
		{"dir = \"d\"\ndir = \"e\"\n", ":2:1: key dir is already defined"},
		{"dir = d\n", ":1:7: "},
		{"dir = \"d\"\nmemory = 1\nmemory 2\n", ":3:"},
		{"config = \"other\"\n", ":1: config: there is no such setting"},
		{"dir = \"d\"\nresp = \"0.0.0.0:1\"\n", ":2: resp: 0.0.0.0:1 can be reached"},
		{"dir = \"d\"\ndurability = \"often\"", ":2: durability: \"often\" is none of"},
	} {
		_, err := read(x.text)
		require.ErrorIs(t, err, errUsage, "%s", x.text)
		assert.Contains(t, err.Error(), path+x.wrong, "%s", x.text)
	}
	require.NoError(t, os.WriteFile(path, []byte("dir = \"d\"\npassword = \"p\"\n"), 0o644))
	require.NoError(t, os.Chmod(path, 0o644))
	_, err = parse([]string{"--config", path}, none, nil)
	assert.ErrorContains(t, err, "others can read the file")
	_, err = parse([]string{"--config", path + "x"}, none, nil)
	assert.ErrorContains(t, err, "--config: ")
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"help"}, 0, "flashdbmd serve --dir DIR"},
		{nil, exitUsage, "no command given"},
		{[]string{"serv"}, exitUsage, `there is no command "serv"`},
		{[]string{"serve", "--dir", "/dev/null/d"}, exitFailed, "/dev/null"},
	} {
		var out bytes.Buffer
		assert.Equal(t, c.code, run(c.args, &out, &out), "%v", c.args)
		assert.Contains(t, out.String(), c.says)
	}
}
