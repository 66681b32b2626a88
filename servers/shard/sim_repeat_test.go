package shard

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSimulationRepeats runs seeds twice: a line that runs a failing seed again is useful only if it does the same.
// Seeds with a file on a disk are left out: they have threads of the engine, which the simulator does not control.
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
