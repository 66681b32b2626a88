package main

import (
	"bytes"
	"flag"
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
		"--shards: -1 is out of range":             {"--dir", "d", "--shards", "-1"},
		"--memory: -4 is out of range":             {"--dir", "d", "--memory", "-4"},
		"certificate and key come together":        {"--dir", "d", "--tls-key", "k"},
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

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"help"}, 0, "flashdbmd serve --dir DIR"},
		{nil, exitUsage, "what is to be done?"},
		{[]string{"serv"}, exitUsage, `there is no command "serv"`},
		{[]string{"serve", "--dir", "/dev/null/d"}, exitFailed, "/dev/null"},
	} {
		var out bytes.Buffer
		assert.Equal(t, c.code, run(c.args, &out, &out), "%v", c.args)
		assert.Contains(t, out.String(), c.says)
	}
}
