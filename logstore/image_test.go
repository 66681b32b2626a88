package logstore

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestImageShapes writes images with segments of all small sizes and with trees of up to several segments, so
// that the checkpoint begins and continues at every place in a segment, and opens each image: the checkpoint is
// found, and the log ends after it.
func TestImageShapes(t *testing.T) {
	for _, size := range []uint32{8, 16, 32} {
		for _, large := range []int64{0, 1, 5 * PageSize, int64(size) * PageSize * 3} {
			for pages := 1; pages < int(size)*2+6; pages += 1 + int(size)/16 {
				table := bytes.Repeat([]byte{7}, 100+pages%3*BodySize*int(size)*3/5)
				plan := NewImagePlan(size)
				write := func(page func(last bool), run func(n int64)) {
					for i := range pages {
						if i%5 == 4 {
							run(int64(i%3) * 3000)
						}
						page(i == pages-1)
					}
				}
				if large > 0 {
					require.NoError(t, plan.Large(0, large))
				}
				write(func(bool) { plan.Page() }, func(n int64) { require.NoError(t, plan.Run(n)) })
				var out bytes.Buffer
				im := plan.Image(&out, len(table))
				var extents []Extent
				if large > 0 {
					var err error
					extents, err = im.Large(bytes.NewReader(make([]byte, large)), large, 0)
					require.NoError(t, err)
					a, err := im.List(nil, extents)
					require.NoError(t, err)
					require.NotZero(t, a)
				}
				write(func(last bool) {
					_, body, err := im.Tree(0)
					require.NoError(t, err)
					body[100] = 1
				}, func(n int64) {
					_, err := im.Run(nil, make([]byte, n))
					require.NoError(t, err)
				})
				require.NoError(t, im.Finish(table))
				require.EqualValues(t, out.Len(), im.Bytes())

				mem := vfs.NewMem(0)
				f, err := mem.Open("image", 0x42, 0o600) // O_RDWR, O_CREATE
				require.NoError(t, err)
				_, err = f.WriteAt(out.Bytes(), 0)
				require.NoError(t, err)
				require.NoError(t, f.Close())
				s, rec, err := Open(mem, "image", Options{ChunkPages: 1 << 11})
				require.NoError(t, err, "segments of %d pages, %d pages, large value of %d bytes", size, pages, large)
				require.Equal(t, table, rec.Table)
				for _, g := range rec.Groups {
					require.Equal(t, CheckpointGroup, g.Kind)
				}
				for _, x := range extents {
					b, err := s.Raw(x)
					require.NoError(t, err)
					require.Len(t, b, int(x.Bytes))
				}
				require.NoError(t, s.EndRecovery(rec))
				require.NoError(t, s.Close())
				mem.Release()
			}
		}
	}
}

// TestImageIsAsPlanned: writing pages that were not planned, or too few, is an error, and the file does not
// open.
func TestImageIsAsPlanned(t *testing.T) {
	for _, pages := range []int{1, 3} {
		plan := NewImagePlan(8)
		plan.Page()
		plan.Page()
		var out bytes.Buffer
		im := plan.Image(&out, 4)
		for range pages {
			_, _, err := im.Tree(0)
			require.NoError(t, err)
		}
		require.ErrorIs(t, im.Finish(make([]byte, 4)), ErrImage)
	}
}
