package override

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// TestDeathsOfValuesOfAnImage: in an image a large value begins where the previous one ends, so it may have one
// page in its first segment. Its death takes no more entries of a flush's stream than were counted for it.
func TestDeathsOfValuesOfAnImage(t *testing.T) {
	const segmentPages, lead = 16, 14 // the lead leaves one page of its segment
	for pages := int64(1); pages < 3*segmentPages; pages++ {
		plan := logstore.NewImagePlan(segmentPages)
		sizes := []int64{lead * logstore.PageSize, pages * logstore.PageSize}
		for _, n := range sizes {
			require.NoError(t, plan.Large(0, n))
		}
		im := plan.Image(io.Discard, 0)
		for _, n := range sizes {
			extents, err := im.Large(bytes.NewReader(make([]byte, n)), n, 0)
			require.NoError(t, err)
			var d deaths
			d.add(btree.Ref{Kind: btree.Extents, ValueLen: uint64(n)}, segmentPages)
			require.LessOrEqual(t, 1+len(extents), d.entries, "%d pages", n/logstore.PageSize)
		}
	}
}
