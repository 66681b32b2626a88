//go:build invariants

package override

import (
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/lockfree"
)

// TestFreedUnderAReader: a version that a registered reader may see is not freed, even if an older copy of the
// registry lacks the reader.
func TestFreedUnderAReader(t *testing.T) {
	l := limbo{registry: &lockfree.Registry{}, pins: []uint64{7}}
	reader := l.registry.Acquire(unmoved(4))
	require.PanicsWithValue(t, "flashdbm: invariant: a version is freed that a reader may see", func() { l.mustBeUnseen(3, 5) })
	l.mustBeUnseen(3, 4)
	reader.Release()
	l.mustBeUnseen(3, 5)
}
