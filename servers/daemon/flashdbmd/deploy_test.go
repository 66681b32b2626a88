package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeploy: the program accepts the settings files that are shipped, including the settings that are commented out;
// the shipped unit and container file agree with the program on the exit code and on the variables.
func TestDeploy(t *testing.T) {
	shipped := filepath.Join("..", "..", "deploy")
	text, err := os.ReadFile(filepath.Join(shipped, "flashdbmd.toml"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "flashdbmd.toml")
	for name, text := range map[string][]byte{
		"as it is":       text,
		"with all of it": regexp.MustCompile(`(?m)^# ([a-z-]+ = )`).ReplaceAll(text, []byte("$1")),
	} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		c, err := parse([]string{"--config", path}, func(string) (string, bool) { return "", false }, nil)
		require.NoError(t, err, name)
		assert.Equal(t, "/var/lib/flashdbm", c.dir)
	}
	unit, err := os.ReadFile(filepath.Join(shipped, "flashdbmd.service"))
	require.NoError(t, err)
	assert.Contains(t, string(unit), "flashdbmd serve --config /etc/flashdbm/flashdbmd.toml\n")
	assert.Contains(t, string(unit), "RestartPreventExitStatus=2\n", "exit code of settings that are wrong")
	assert.Equal(t, 2, exitUsage)
	assert.Contains(t, string(unit), "\nStartLimitIntervalSec=0\n", "five starts that fail within ten seconds would be the last ones")
	image, err := os.ReadFile(filepath.Join(shipped, "Containerfile"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`FLASHDBMD_([A-Z_]+)=`).FindAllStringSubmatch(string(image), -1) {
		assert.Contains(t, []string{"DIR", "RESP", "PASSWORD"}, m[1])
	}
}
