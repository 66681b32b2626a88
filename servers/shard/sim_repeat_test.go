package shard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSimulationRepeats plays seeds twice: a line that plays a failing seed again is of use only if it does the same. Those with a file on a disk
// have the engine's threads, which are not the simulator's.
func TestSimulationRepeats(t *testing.T) {
	n := 0
	for seed := uint64(1); n < 12; seed++ {
		a := newSimulation(seed)
		if a.file.mem != nil {
			a.file.close()
			a.w.Close()
			continue
		}
		n++
		require.Empty(t, a.run())
		b := newSimulation(seed)
		require.Empty(t, b.run())
		require.Equal(t, a.counts, b.counts, "seed %d", seed)
		require.Equal(t, a.w.Now(), b.w.Now(), "seed %d", seed)
	}
}
