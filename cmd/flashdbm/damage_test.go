package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var damageRuns = flag.Int("damage.runs", 24, "damaged files that the commands are tried on")

// TestDamagedFiles: for a damaged file, each command either prints correct output or fails with an error of one
// line. It prints nothing that is not in the intact database, and a dump that claims to be complete is complete.
func TestDamagedFiles(t *testing.T) {
	inTurn(t)
	path := filepath.Join(t.TempDir(), "whole.fdbm")
	var items strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&items, " key %05d\n value %d\n", i*7919%3000, i)
	}
	succeedWith(t, "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n"+items.String()+"DATA=END\n", "load", path)
	succeed(t, "put", path, "long", strings.Repeat("long ", 5000))
	whole := succeed(t, "dump", path)
	lines := map[string]bool{}
	for line := range strings.Lines(whole) {
		lines[line] = true
	}
	file := []byte(readFile(t, path))
	rng := rand.New(rand.NewPCG(1, uint64(*damageRuns)))
	refused := 0
	for n := range *damageRuns {
		bad := append([]byte{}, file...)
		at := rng.IntN(len(bad))
		var what string
		switch n % 4 {
		case 0:
			bad, what = bad[:at/512*512+1], fmt.Sprintf("cut at %d", at)
		case 1:
			bad[at] ^= 1 << rng.IntN(8)
			what = fmt.Sprintf("bit of byte %d", at)
		case 2:
			at = at / 4096 * 4096
			copy(bad[at:], make([]byte, 512))
			what = fmt.Sprintf("zeros at %d", at)
		case 3:
			at = at / 4096 * 4096
			for i := range 512 {
				bad[at+i] = byte(rng.Uint32())
			}
			what = fmt.Sprintf("noise at %d", at)
		}
		damaged := filepath.Join(t.TempDir(), "damaged.fdbm")
		require.NoError(t, os.WriteFile(damaged, bad, 0o600))
		for _, args := range [][]string{{"dump", damaged}, {"stat", damaged}, {"get", damaged, "long"}, {"check", damaged}} {
			r := execute(t, "", args...)
			require.Contains(t, []int{exitDone, exitError}, r.code, "%s: %s: %s", what, args[0], r.stderr)
			require.NotContains(t, r.stderr, "goroutine ", "%s: %s", what, args[0])
			if r.code == exitError {
				refused++
				require.Contains(t, r.stderr, "flashdbm: ", "%s: %s", what, args[0])
			}
			if args[0] != "dump" {
				continue
			}
			for line := range strings.Lines(r.stdout) {
				require.True(t, lines[line] || !strings.HasSuffix(line, "\n"), "%s: the dump says %q", what, line)
			}
			if r.code == exitDone {
				require.Equal(t, whole, r.stdout, "%s: a dump that is not whole", what)
			}
		}
	}
	t.Logf("%d files, %d times refused", *damageRuns, refused)
	require.NotZero(t, refused)
}
