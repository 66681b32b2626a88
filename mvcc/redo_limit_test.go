package mvcc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRedoLimit: the limit follows what the file may take beside what lives between its floor and what the user has set, and never passes that.
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
