package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRedoLimit: the limit is a share of the space between the live bytes and the bound. It is not below its floor,
// and never above the user's limit.
func TestRedoLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ most, beside, want int64 }{
		{32 * mib, -mib, 8 * mib},
		{32 * mib, 10 * mib, 8 * mib},
		{32 * mib, 48 * mib, 16 * mib},
		{32 * mib, 200 * mib, 32 * mib},
		{64 * mib, 150 * mib, 50 * mib},
		{64 * mib, 2048 * mib, 64 * mib},
		{1 * mib, 2048 * mib, 1 * mib},
		{1 * mib, 0, 1 * mib},
	} {
		require.Equal(t, c.want, redoLimit(c.most, c.beside), c)
	}
}

// TestNewRedoLimit: the first flush of a new file is due when its pages would reach the bound, and not before. When it
// becomes due, redo is not yet so long that commits are delayed.
func TestNewRedoLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ most, redo, dirty, bound, want int64 }{
		{64 * mib, 0, 0, 26 * mib, 64 * mib},
		{64 * mib, 30 * mib, 40 * mib, 80 * mib, 64 * mib},
		{64 * mib, 40 * mib, 48 * mib, 80 * mib, 40 * mib},
		{64 * mib, 70 * mib, 90 * mib, 80 * mib, 64 * mib},
		{64 * mib, 1 * mib, 90 * mib, 80 * mib, redoFloor},
		{1 * mib, 20 * mib, 90 * mib, 80 * mib, 1 * mib},
	} {
		require.Equal(t, c.want, newRedoLimit(c.most, c.redo, c.dirty, c.bound), c)
	}
}
