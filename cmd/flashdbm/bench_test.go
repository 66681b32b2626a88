package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBench(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var r benchResult
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "bench", dir, "--time", "1s", "--json")), &r))
	require.Len(t, r.Figures, benchSteps)
	for _, f := range r.Figures {
		require.Positive(t, f.Count, f.Name)
		require.Positive(t, f.Rate, f.Name)
		require.Positive(t, f.Time, f.Name)
	}
	for _, f := range r.Figures[:benchTogether+1] {
		require.Positive(t, f.Median, f.Name)
		require.GreaterOrEqual(t, f.P99, f.Median, f.Name)
	}
	require.Zero(t, r.Figures[benchBuffered].Median, "not timed")
	require.NotEmpty(t, r.Advice)
	require.Equal(t, dir, r.Directory)
	requireEmpty(t, dir)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestBenchInterrupted: bench removes its files when it is interrupted.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := command(t, "bench", dir, "--time", "1m")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "flashdbm-bench-*", "raw"))
		return len(found) > 0
	}, waitForProcess, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitError, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "interrupted")
	requireEmpty(t, dir)
}

func TestBenchErrors(t *testing.T) {
	fail(t, exitError, []string{"there is no directory"}, "bench", filepath.Join(t.TempDir(), "none"))
	for _, time := range []string{"999ms", "61s", "-1s"} {
		fail(t, exitUsage, []string{"--time must be from 1s to 1m"}, "bench", "--time="+time)
	}
}

// TestBenchAdvice: each kind of disk gets the advice meant for it.
func TestBenchAdvice(t *testing.T) {
	result := func(median, p99 time.Duration, bare, alone, together float64) *benchResult {
		return &benchResult{Directory: "data", Figures: []benchFigure{
			{Name: "bare", Per: "pages", Rate: bare, Median: median, P99: p99}, {Name: "alone", Per: "commits", Rate: alone, Median: median, P99: p99},
			{Name: "together", Per: "commits", Rate: together}, {Name: "buffered", Per: "records", Rate: 500_000},
		}}
	}
	for _, c := range []struct {
		says string
		r    *benchResult
	}{
		{"this is memory", result(time.Microsecond, 2*time.Microsecond, 500_000, 100_000, 300_000)},
		{"25 times as many commits with 64", result(8*time.Millisecond, 20*time.Millisecond, 120, 118, 2950)},
		{"500,000 records a second", result(8*time.Millisecond, 20*time.Millisecond, 120, 118, 3000)},
		{"other programs use this disk", result(time.Millisecond, 30*time.Millisecond, 900, 850, 20_000)},
		{"reached 50 % of the bare disk", result(time.Millisecond, 2*time.Millisecond, 1000, 500, 20_000)},
		{"gets 95 % of what this disk can sync", result(time.Millisecond, 2*time.Millisecond, 1000, 950, 19_000)},
		{"commit 20 times as much", result(time.Millisecond, 2*time.Millisecond, 1000, 950, 19_000)},
	} {
		require.Contains(t, c.r.advise(), c.says)
		require.NotContains(t, c.r.advise(), "\n")
	}
	r := result(time.Millisecond, 2*time.Millisecond, 1000, 950, 19_000)
	r.Advice = r.advise()
	var out strings.Builder
	require.NoError(t, r.print(&out))
	lines := strings.Split(out.String(), "\n")
	require.Regexp(t, `^ *data +per second +median +p99 +to bare disk *$`, lines[0])
	require.Regexp(t, `^ *alone +950 commits +1ms +2ms +0\.95x *$`, lines[2])
	require.Regexp(t, `^ *together +19,000 commits +19\.00x *$`, lines[3])
	require.Equal(t, r.Advice, lines[len(lines)-2])
}
