package logstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// toyFile makes a synced file of the toy that uses every structure: runs, large values, reused segments, groups
// after the newest checkpoint.
func toyFile(t testing.TB, seed uint64) (*vfs.Mem, *lineage) {
	mem, log := vfs.NewMem(4<<20), newLineage()
	d, err := openToy(mem, modelOptions(), rand.New(rand.NewPCG(seed, 2)), log)
	require.NoError(t, err)
	defer d.s.Close()
	for range 12 {
		for range 4 {
			require.NoError(t, d.commit())
		}
		d.s.SetSnapshots([]uint64{d.clock})
		d.clean()
		require.NoError(t, d.flushAll())
		require.NoError(t, d.checkpoint())
	}
	for range 5 {
		require.NoError(t, d.commit())
		require.NoError(t, d.sync())
	}
	require.NoError(t, d.verify())
	log.issued = d.seq
	return mem, log
}

// readToy recovers the toy read-only and reads everything. The last commit may be missing, because no later group
// proves that it was durable. dropped says whether it is missing, and reported whether the store has said so.
func readToy(mem *vfs.Mem, log *lineage) (dropped, reported bool, err error) {
	opts := modelOptions()
	opts.ReadOnly = true
	s, rec, err := Open(mem, toyPath, opts)
	if err != nil {
		return false, false, err
	}
	defer s.Close()
	if rec.Created {
		return false, false, fmt.Errorf("%w: taken for a new file", errToy)
	}
	log = log.clone()
	last := log.issued
	log.acked, log.written = last-1, last-1
	d := &toy{s: s, r: rand.New(rand.NewPCG(1, 1)), log: log, place: map[PageID]Addr{}, dirty: map[int]bool{}, moves: map[PageID]bool{}}
	err = d.recover(rec)
	return d.seq != last, rec.Dropped != 0, err
}

// Whichever bit is flipped, the damage is found or has no effect. Only the groups at the very end of the log may be
// dropped, because no later page proves that they were durable. That is reported.
func TestEveryFlippedBit(t *testing.T) {
	mem, log := toyFile(t, 3)
	defer mem.Release()
	_, _, err := readToy(mem, log)
	require.NoError(t, err)
	f, err := mem.Open(toyPath, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	stride := 97
	if testing.Short() {
		stride = 997
	}
	var found, dropped, unaffected int
	page := make([]byte, 1)
	for at := int64(0); at < size*8; {
		f.ReadAt(page, at/8)
		page[0] ^= 1 << (at % 8)
		f.WriteAt(page, at/8)
		drop, reported, err := readToy(mem, log)
		switch {
		case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat):
			found++
		case err != nil || drop && !reported:
			t.Fatalf("bit %d of byte %d in page %d: dropped %v, reported %v: %v", at%8, at/8%PageSize, at/8/PageSize, drop, reported, err)
		case drop:
			dropped++
		default:
			unaffected++
		}
		page[0] ^= 1 << (at % 8)
		f.WriteAt(page, at/8)
		if in := at / 8 % PageSize; in < MuxSize+8 { // these contain references to other places and are tried more often
			at += 1 + int64(r.IntN(stride))
		} else {
			at += 1 + int64(r.IntN(stride*40))
		}
	}
	t.Logf("%d found, %d groups dropped, %d unaffected", found, dropped, unaffected)
	require.NotZero(t, found)
	require.NotZero(t, unaffected)
}

// The same holds for every lost sector.
func TestEveryLostSector(t *testing.T) {
	inTurn(t)
	mem, log := toyFile(t, 4)
	defer mem.Release()
	f, err := mem.Open(toyPath, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	old, lost := make([]byte, vfs.SectorSize), make([]byte, vfs.SectorSize)
	step := int64(vfs.SectorSize)
	if testing.Short() {
		step *= 7
	}
	for at := int64(0); at < size; at += step {
		f.ReadAt(old, at)
		for _, fill := range []byte{0, 0xFF} {
			for i := range lost {
				lost[i] = fill
			}
			f.WriteAt(lost, at)
			_, _, err := readToy(mem, log)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
				t.Fatalf("sector at byte %d filled with %#x: %v", at, fill, err)
			}
		}
		f.WriteAt(old, at)
	}
}

// A file that was cut short anywhere is refused, unless only unused space was cut off.
func TestCutShort(t *testing.T) {
	inTurn(t)
	mem, log := toyFile(t, 5)
	defer mem.Release()
	f, err := mem.Open(toyPath, os.O_RDWR, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	whole := make([]byte, size)
	f.ReadAt(whole, 0)
	f.Close()
	step := int64(vfs.SectorSize)
	if testing.Short() {
		step *= 5
	}
	var refused, dropped, fine int
	for n := size - step; n > 0; n -= step {
		cut := vfs.NewMem(4 << 20)
		f, err := cut.Open(toyPath, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		f.WriteAt(whole[:n], 0)
		f.Close()
		drop, _, err := readToy(cut, log)
		switch {
		case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat):
			refused++
		case err != nil:
			t.Fatalf("cut to %d bytes: %v", n, err)
		case drop:
			dropped++
		default:
			fine++
		}
		cut.Release()
	}
	t.Logf("%d refused, %d with groups dropped, %d fine", refused, dropped, fine)
	require.NotZero(t, refused)
}

// Opening a damaged or hostile file does not take much memory.
func TestMemoryOfHostileSizes(t *testing.T) {
	mem := vfs.NewMem(512 << 20)
	defer mem.Release()
	f, err := mem.Open(toyPath, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	h := header{successor: 1 << 31, salt: 1, sequence: 1, group: 1}
	sb := superblock{segmentPages: MaxSegmentPages, run: Position{Page: 3, Group: 1, Check: 1}, runFirst: 1, runLast: 1 << 60, start: Position{Page: 3, Group: 1, Check: 1}}
	page := make([]byte, PageSize)
	sb.put(page)
	f.WriteAt(page, 0)
	h.put(page)
	f.WriteAt(page, 2*PageSize)
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = Open(mem, toyPath, Options{ChunkPages: 128})
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrCorrupt)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
}
