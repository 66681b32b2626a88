package dbm

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/salvage"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// endSegmentPages is the size of segments in tests of the end of the log: its segments change often.
const endSegmentPages = 16

// fileBytes returns the contents of a file in memory.
func fileBytes(t testing.TB, mem *vfs.Mem) []byte {
	t.Helper()
	f, err := mem.Open(salvagePath, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	require.True(t, err == nil || err == io.EOF)
	return b
}

// openEndSegments creates a database in memory with segments of endSegmentPages.
func openEndSegments(t *testing.T, durability Durability) (*vfs.Mem, *DB) {
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	t.Cleanup(mem.Release)
	o := (&Options{Durability: durability}).engine()
	o.Store.SegmentPages = endSegmentPages
	db, err := openEngine(mem, salvagePath, o)
	require.NoError(t, err)
	return mem, db
}

// TestSalvageEnd: after each commit, the file is damaged as follows: the header of the segment with the end of the log
// is lost, and then also the newest pages, or all of that segment is overwritten with noise. Either all committed
// records are recovered, or Salvage reports that some may be missing. Without the header, only the pages of the
// segment, which may be few, show what its salt was, and no later page shows that there were more.
func TestSalvageEnd(t *testing.T) {
	inTurn(t)
	for _, durability := range []Durability{Durable, WriteThrough} { // one record to a page; growing pages
		mem, db := openEndSegments(t, durability)
		rng := rand.New(rand.NewPCG(1, uint64(durability)))
		model := map[string]string{}
		back, told := 0, 0
		for version := range 60 {
			key, value := fmt.Sprintf("%02d", rng.IntN(20)), fmt.Sprintf("%d:%s", version, bytes.Repeat([]byte("."), rng.IntN(3000)))
			if rng.IntN(4) == 0 {
				require.NoError(t, db.Delete([]byte(key)))
				delete(model, key)
			} else {
				require.NoError(t, db.Put([]byte(key), []byte(value)))
				model[key] = value
			}
			copied := mem.Clone()
			image := fileBytes(t, copied)
			copied.Release()
			for pages := range 4 {
				for _, noise := range []bool{false, true}[pages/3:] {
					bad := bytes.Clone(image)
					inSegment := loseEnd(t, rng, bad, pages, noise)
					what := fmt.Sprintf("durability %d, version %d, %d pages lost, noise %v", durability, version, pages, noise)
					all := salvagesAll(t, bad, model, what)
					if all {
						back++
					} else {
						told++
					}
					if pages == 0 && inSegment > 1 {
						require.True(t, all, what) // two pages are enough to find the salt
					}
				}
			}
		}
		require.NoError(t, db.Close())
		t.Logf("durability %d: all back %d times, told %d times", durability, back, told)
		require.Greater(t, back, 100)
		require.Positive(t, told)
	}
}

// loseEnd damages the header of the segment with the newest group, and the given number of newest pages except for
// their first sector; three means the whole segment. It returns how many pages of the log the segment has.
func loseEnd(t *testing.T, rng *rand.Rand, file []byte, pages int, noise bool) (inSegment int) {
	t.Helper()
	end, inSegment := newestPage(t, file)
	lose := func(from, to int) {
		for i := from; i < to; i++ {
			if file[i] = 0; noise {
				file[i] = byte(rng.Uint32())
			}
		}
	}
	head := end / endSegmentPages * endSegmentPages
	first := head + 1
	if head == 0 {
		head, first = 2, 3
	}
	lose(head*logstore.PageSize, (head+1)*logstore.PageSize)
	if pages == 3 {
		lose(first*logstore.PageSize, min((end/endSegmentPages+1)*endSegmentPages*logstore.PageSize, len(file)))
		return inSegment
	}
	for a := end; a > end-pages && a >= first; a-- {
		lose(a*logstore.PageSize+512, (a+1)*logstore.PageSize)
	}
	return inSegment
}

// newestPage returns the last page of the newest group, and how many pages of the log are in its segment.
func newestPage(t *testing.T, file []byte) (page, inSegment int) {
	t.Helper()
	newest := uint64(0)
	pages := map[uint64]int{}
	eachSoundPage(t, file, func(a uint64, x logstore.PageHead, span uint64) {
		pages[a/endSegmentPages]++
		if x.No >= newest {
			newest, page = x.No, int(a+span-1)
		}
	})
	return page, pages[uint64(page)/endSegmentPages]
}

// salvagesAll reports whether exactly the records of the model are recovered. If not, Salvage must report it.
func salvagesAll(t *testing.T, bad []byte, model map[string]string, what string) bool {
	t.Helper()
	told := 0
	records, result, err := salvageBytes(t, bad, salvage.Options{Missing: func(salvage.Missing) { told++ }})
	require.NoError(t, err, what)
	got := map[string]string{}
	for key, r := range records {
		got[key] = string(r.value)
	}
	if maps.Equal(got, model) {
		return true
	}
	if told == 0 && result.Dropped == 0 {
		t.Errorf("%s: records are missing or older, and nothing is told: %+v", what, result)
	}
	return false
}

// TestSalvageTellsOfLostCheckpoints: a superblock refers to a checkpoint, and none can be read. Salvage reports that,
// because the log may have continued in segments that the file no longer has, and nothing else shows this.
func TestSalvageTellsOfLostCheckpoints(t *testing.T) {
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	defer mem.Release()
	db, err := open(mem, salvagePath, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("key"), []byte("value")))
	require.NoError(t, db.Close())
	file := fileBytes(t, mem)
	bad := bytes.Clone(file)
	newest := uint64(0)
	eachSoundPage(t, file, func(a uint64, x logstore.PageHead, span uint64) {
		if x.Group == logstore.CheckpointGroup {
			clear(bad[a*logstore.PageSize:][:span*logstore.PageSize])
			newest = max(newest, x.No)
		}
	})
	var told []salvage.Missing
	records, result, err := salvageBytes(t, bad, salvage.Options{Missing: func(m salvage.Missing) { told = append(told, m) }})
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Zero(t, result.Checkpoint)
	require.Condition(t, func() bool {
		for _, m := range told {
			if m.Scope == salvage.Groups && m.LastGroup == newest && m.Err != nil {
				return true
			}
		}
		return false
	}, "%+v", told)
}
