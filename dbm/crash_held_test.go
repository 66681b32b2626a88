package dbm

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCrashHeldReaders: snapshots are held during many checkpoints. Meanwhile pages that they see are replaced,
// other pages are written and replaced between two of them, and space that no snapshot sees is reused. A crash at
// any operation leaves what the model allows, and each snapshot shows its state until it ends.
func TestCrashHeldReaders(t *testing.T) {
	var all census
	held, thinned := 0, 0
	n := forSeeds(t, math.MaxInt, time.Minute, func(t *testing.T, seed uint64, _ time.Time) {
		c := crashTrial(t, seed, func(c *trial, rng *rand.Rand) {
			c.drawMode(rng)
			l := c.load
			l.holds, l.segmentPages, l.steps = 4+rng.IntN(8), 8, 300
			l.keys, l.even, l.deletes, l.ops = 40+rng.IntN(200), 50+rng.IntN(900), rng.IntN(10), 1+rng.IntN(20)
			l.redoLimit, l.memoryLimit, l.preload = int64(1)<<(14+rng.IntN(3)), 1<<20, 4
			l.big, l.longEvery = min(l.big, 200<<10), 0
		})
		held += c.held
		thinned += c.thinned
		all.add(c)
	}, all.enough(1000))
	all.report(t, n)
	t.Logf("%d checkpoints while snapshots were held, %d holes in segments that they kept", held, thinned)
	if *crashSeed == 0 && all.images >= 1000 {
		require.NotZero(t, held)
		require.NotZero(t, thinned)
		require.GreaterOrEqual(t, all.turns, 3, "turns of the log")
	}
}

// TestCrashOverwrites: transactions overwrite and delete their own records many times after these have left memory,
// and free private segments before they commit. Nobody else can see these segments. A crash at any operation leaves
// what the model allows.
func TestCrashOverwrites(t *testing.T) {
	var all census
	collapsed := uint64(0)
	n := forSeeds(t, math.MaxInt, time.Minute, func(t *testing.T, seed uint64, _ time.Time) {
		c := crashTrial(t, seed, func(c *trial, rng *rand.Rand) {
			c.drawMode(rng)
			l := c.load
			l.rewrites, l.segmentPages, l.steps, l.preload = true, 8, 60, 0
			l.keys, l.ops, l.deletes, l.even, l.middle = 5+rng.IntN(30), 300, rng.IntN(30), 50+rng.IntN(900), 10+rng.IntN(60)
			l.big, l.bigShare = 8<<10<<rng.IntN(4), 20+rng.IntN(60)
			l.longEvery *= rng.IntN(2)
		})
		collapsed += c.collapsed
		all.add(c)
	}, all.enough(1000))
	all.report(t, n)
	t.Logf("%d write sets were written anew", collapsed)
	if *crashSeed == 0 && all.images >= 1000 {
		require.NotZero(t, collapsed)
	}
	if *crashSeed == 0 && all.images >= 10_000 {
		require.NotZero(t, all.layersRedone)
	}
}
