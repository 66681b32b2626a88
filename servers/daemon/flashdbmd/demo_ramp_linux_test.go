package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDemoRamp: the demo at a tenth of its size.
func TestDemoRamp(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes")
	}
	cmd := exec.Command(os.Args[0], "demo", "ramp", "--each", "300ms")
	cmd.Env = append(os.Environ(), "FLASHDBMD_TEST_PROCESS=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Contains(t, string(out), "10 clients killed between PREPARE and COMMIT")
	assert.Contains(t, string(out), "160 friendships and persons are whole")
}

// TestRampSubjects: values that the demo accepts as whole are those of one transaction.
func TestRampSubjects(t *testing.T) {
	for _, s := range []subject{person("p:", 3), friendship("p:", 1, 2), orphan(1)} {
		for n := 1; n < 10; n++ {
			got, whole := s.number(s.values(n))
			assert.Equal(t, n, got)
			assert.True(t, whole)
			for i := range s.keys {
				mixed := s.values(n)
				mixed[i] = s.values(n + 4)[i]
				_, whole = s.number(mixed)
				assert.False(t, whole, "%s: value %d is of another transaction", s.name, i)
				mixed[i] = nil
				_, whole = s.number(mixed)
				assert.False(t, whole)
				alone := make([][]byte, len(s.keys))
				alone[i] = s.values(n)[i]
				_, whole = s.number(alone)
				assert.False(t, whole, "%s: value %d is alone", s.name, i)
			}
		}
		n, whole := s.number(make([][]byte, len(s.keys)))
		assert.Zero(t, n)
		assert.True(t, whole)
	}
}
