package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

const (
	sector = vfs.SectorSize
	page   = 4096
)

// newMem returns a Mem with one durable empty file.
func newMem(t testing.TB) (*vfs.Mem, vfs.File) {
	t.Helper()
	m := vfs.NewMem(4 << 20)
	t.Cleanup(m.Release)
	f := create(t, m, "db")
	require.NoError(t, m.SyncDir("db"))
	return m, f
}

// read returns the file's bytes, nil if it is not there.
func read(t testing.TB, m *vfs.Mem, name string) []byte {
	t.Helper()
	f, err := m.Open(name, os.O_RDONLY, 0)
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
		return nil
	}
	defer f.Close()
	return content(t, f)
}

// images returns the file's content after a crash, for each policy and seed.
func images(t testing.TB, m *vfs.Mem, seeds int) map[vfs.Policy][][]byte {
	t.Helper()
	all := make(map[vfs.Policy][][]byte)
	for _, p := range vfs.Policies() {
		for seed := range seeds {
			img := m.Crash(p, uint64(seed))
			all[p] = append(all[p], read(t, img, "db"))
			img.Release()
		}
	}
	return all
}

// pages returns count pages, each full of one letter, from the given letter on.
func pages(letter byte, count int) []byte {
	var p []byte
	for i := range count {
		p = append(p, bytes.Repeat([]byte{letter + byte(i)}, page)...)
	}
	return p
}

// legal records in a simple way what may be on disk: for each sector and for the size, all values since it was last
// durable.
type legal struct {
	sectors  map[int64][][]byte // the last one is in the cache
	dirty    map[int64]bool     // by page
	sizes    []int64
	sizeBusy bool
}

func newLegal() *legal {
	return &legal{sectors: make(map[int64][][]byte), dirty: make(map[int64]bool), sizes: []int64{0}}
}

func (l *legal) current(s int64) []byte {
	if v := l.sectors[s]; len(v) > 0 {
		return v[len(v)-1]
	}
	return make([]byte, sector)
}

// write notes a change of [off, off+len(p)), which does not set the size.
func (l *legal) write(p []byte, off int64) {
	for i := 0; i < len(p); {
		s, at := (off+int64(i))/sector, (off+int64(i))%sector
		now := slices.Clone(l.current(s))
		if len(l.sectors[s]) == 0 {
			l.sectors[s] = [][]byte{make([]byte, sector)}
		}
		i += copy(now[at:], p[i:])
		l.sectors[s] = append(l.sectors[s], now)
		l.dirty[s*sector/page] = true
	}
}

// zero notes that a range is zero now. A sector that was zero before need not become dirty.
func (l *legal) zero(off, n int64) {
	for at := off; at < off+n; {
		stop := min((at/sector+1)*sector, off+n)
		if now := l.current(at / sector); !bytes.Equal(now, make([]byte, sector)) {
			l.write(make([]byte, stop-at), at)
		}
		at = stop
	}
}

// resize notes a change of the size; a write changes it sector by sector.
func (l *legal) resize(size int64, stepwise bool) {
	now := l.sizes[len(l.sizes)-1]
	if now == size {
		return
	}
	for at := (now/sector + 1) * sector; stepwise && at < size; at += sector {
		l.sizes = append(l.sizes, at)
	}
	l.sizes = append(l.sizes, size)
	l.sizeBusy = true
}

func (l *legal) sync(ok bool) {
	if ok {
		for s, v := range l.sectors {
			if l.dirty[s*sector/page] {
				l.sectors[s] = v[len(v)-1:]
			}
		}
		if l.sizeBusy {
			l.sizes = l.sizes[len(l.sizes)-1:]
		}
	}
	clear(l.dirty)
	l.sizeBusy = false
}

// lost records what the file shows after a failed sync: each sector may have gone back to its durable content.
func (l *legal) lost(t testing.TB, now []byte) {
	l.check(t, now)
	for s, v := range l.sectors {
		if s*sector >= int64(len(now)) {
			continue
		}
		was := make([]byte, sector)
		copy(was, now[s*sector:])
		if !bytes.Equal(v[len(v)-1], was) {
			l.sectors[s] = append(v, was)
		}
	}
}

func (l *legal) check(t testing.TB, img []byte) {
	t.Helper()
	require.Contains(t, l.sizes, int64(len(img)))
	for at := 0; at < len(img); at += sector {
		got := img[at:min(at+sector, len(img))]
		versions := l.sectors[int64(at/sector)]
		if len(versions) == 0 {
			versions = [][]byte{make([]byte, sector)}
		}
		legal := slices.ContainsFunc(versions, func(v []byte) bool { return bytes.Equal(v[:len(got)], got) })
		if !legal {
			t.Fatalf("sector at %d holds %x..., which it never held since it was durable", at, got[:8])
		}
	}
}

// TestImagesAreLegal runs random operations, with syncs of which some fail,
// and checks images by every policy.
func TestImagesAreLegal(t *testing.T) {
	inTurn(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 0))
			m, f := newMem(t)
			m.SetLoss(vfs.Loss(seed%3), uint64(seed))
			l := newLegal()
			for step := range 60 {
				randomStep(t, m, f, l, rng)
				img := m.Crash(vfs.Policy(step%len(vfs.Policies())), rng.Uint64())
				l.check(t, read(t, img, "db"))
				checkDurable(t, img)
				clone := m.Clone()
				require.True(t, bytes.Equal(content(t, f), read(t, clone, "db")))
				later := clone.Crash(vfs.KeepRandomSectors, rng.Uint64())
				l.check(t, read(t, later, "db"))
				later.Release()
				clone.Release()
				img.Release()
			}
		})
	}
}

func randomStep(t *testing.T, m *vfs.Mem, f vfs.File, l *legal, rng *rand.Rand) {
	off, n := rng.Int64N(20*page), 1+rng.Int64N(3*page)
	if rng.IntN(2) == 0 {
		off, n = off/page*page, (1+n/page)*page
	}
	size := l.sizes[len(l.sizes)-1]
	switch rng.IntN(10) {
	case 0, 1, 2, 3:
		p := randomBytes(rng, n)
		write(t, f, p, off)
		l.write(p, off)
		// The first step of growth is where the write begins to pass the end.
		if off+n > size {
			first := min((max(off, size)/sector+1)*sector, off+n)
			l.resize(first, false)
			l.resize(off+n, true)
		}
	case 4:
		require.NoError(t, f.Allocate(off, n))
		l.resize(max(size, off+n), false)
	case 5:
		require.NoError(t, f.Punch(off, n))
		l.zero(off, n)
	case 6:
		require.NoError(t, f.Truncate(off))
		if off < size {
			l.zero(off, size-off)
		}
		l.resize(off, false)
	case 7, 8:
		require.NoError(t, f.Datasync())
		l.sync(true)
	case 9:
		failNext(m, vfs.OpDatasync, syscall.EIO)
		require.ErrorIs(t, f.Datasync(), syscall.EIO)
		m.OnOp(nil)
		l.sync(false)
		if rng.IntN(4) == 0 {
			m.Evict()
		}
		l.lost(t, content(t, f))
	}
}

// checkDurable checks that an image is durable: crashing it changes nothing.
func checkDurable(t testing.TB, img *vfs.Mem) {
	t.Helper()
	require.Zero(t, img.Units())
	want := read(t, img, "db")
	checkEnd(t, img, want)
	for _, p := range vfs.Policies() {
		again := img.Crash(p, 1)
		require.True(t, bytes.Equal(want, read(t, again, "db")), p)
		again.Release()
	}
}

// failNext makes operations of one kind fail from now on.
func failNext(m *vfs.Mem, kind vfs.Kind, err error) {
	m.OnOp(func(op vfs.Op) error {
		if op.Kind == kind {
			return err
		}
		return nil
	})
}

// checkEnd checks that space and size of an image agree with its content, and
// that nothing is left beyond its end.
func checkEnd(t testing.TB, img *vfs.Mem, want []byte) {
	t.Helper()
	f := open(t, img, "db", os.O_RDWR)
	blocks, err := f.Blocks()
	require.NoError(t, err)
	full := 0
	for at := 0; at < len(want); at += page {
		if slices.ContainsFunc(want[at:min(at+page, len(want))], func(b byte) bool { return b != 0 }) {
			full++
		}
	}
	require.LessOrEqual(t, int64(full), blocks/page)
	require.LessOrEqual(t, blocks/page, int64(len(want)+page-1)/page)
	b, err := f.Map(0, 40*page)
	require.NoError(t, err)
	require.True(t, bytes.Equal(make([]byte, 40*page-len(want)), b[len(want):]))
	require.NoError(t, f.Close())
}

func TestPolicies(t *testing.T) {
	inTurn(t)
	m, f := newMem(t)
	old := pages('a', 4)
	write(t, f, old, 0)
	require.NoError(t, f.Datasync())
	now := pages('A', 4)
	for i := range 4 {
		write(t, f, now[i*page:(i+1)*page], int64(i*page))
	}
	// newSectors lists the sectors that an image has of the new content.
	newSectors := func(img []byte) (list []int) {
		for i := 0; i < len(img); i += sector {
			if img[i] == now[i] {
				list = append(list, i/sector)
			}
		}
		return list
	}
	const seeds = 1000
	seen := make(map[vfs.Policy]map[string]bool)
	for p, imgs := range images(t, m, seeds) {
		seen[p] = make(map[string]bool)
		for _, img := range imgs {
			require.Len(t, img, 4*page)
			list := newSectors(img)
			seen[p][fmt.Sprint(list)] = true
			switch p {
			case vfs.KeepNone:
				require.Equal(t, old, img)
			case vfs.KeepAll:
				require.Equal(t, now, img)
			case vfs.KeepPrefix:
				require.True(t, len(list) == 0 || list[len(list)-1] == len(list)-1, list)
			case vfs.KeepSuffix:
				require.True(t, len(list) == 0 || list[0] == 32-len(list) && list[len(list)-1] == 31, list)
			case vfs.KeepRandomPages:
				require.Zero(t, len(list)%8)
			case vfs.KeepAllButOne:
				require.Contains(t, []int{31, 24}, len(list))
			case vfs.KeepLastPage:
				require.Equal(t, []int{24, 25, 26, 27, 28, 29, 30, 31}, list)
			}
		}
	}
	for p, want := range map[vfs.Policy]int{
		vfs.KeepPrefix: 33, vfs.KeepSuffix: 33, vfs.KeepRandomPages: 16, vfs.KeepRandomSectors: seeds, vfs.KeepAllButOne: 32 + 4,
	} {
		require.Equal(t, want, len(seen[p]), "different images by %v", p)
	}
}

func TestSameSeedSameImage(t *testing.T) {
	m, f := newMem(t)
	write(t, f, pages('a', 20), 100)
	write(t, f, pages('A', 7), 5000)
	require.Equal(t, images(t, m, 5), images(t, m, 5))
}

// TestEveryVersionOfASector writes two sectors twice: each can be on disk as
// any of three, and the file with any of two sizes.
func TestEveryVersionOfASector(t *testing.T) {
	m, f := newMem(t)
	write(t, f, bytes.Repeat([]byte{'1'}, sector), 0)
	require.NoError(t, f.Datasync())
	for _, c := range []byte("23") {
		write(t, f, bytes.Repeat([]byte{c}, 2*sector), 0)
	}
	require.Equal(t, 5, m.Units())
	bySubset := make(map[string]bool)
	for mask := range uint64(1 << 5) {
		img := m.CrashSubset(mask)
		b := read(t, img, "db")
		img.Release()
		bySubset[firstBytes(b)] = true
	}
	require.Len(t, bySubset, 3*3+3)
	byChance := make(map[string]bool)
	for seed := range 500 {
		img := m.Crash(vfs.KeepRandomSectors, uint64(seed))
		byChance[firstBytes(read(t, img, "db"))] = true
		img.Release()
	}
	require.Equal(t, bySubset, byChance)
}

// firstBytes returns the first byte of each sector.
func firstBytes(b []byte) string {
	var s []byte
	for at := 0; at < len(b); at += sector {
		s = append(s, b[at])
	}
	return string(s)
}

func TestUnitsOfManySectorsArePages(t *testing.T) {
	m, f := newMem(t)
	require.NoError(t, f.Truncate(8*page))
	require.NoError(t, f.Datasync())
	require.Zero(t, m.Units())
	write(t, f, make([]byte, page), 0)
	require.Equal(t, 8, m.Units())
	write(t, f, pages('a', 2), page+sector) // ends within a third page
	require.Equal(t, 1+3, m.Units())
	write(t, f, pages('b', 2), page+sector) // a second version of each
	require.Equal(t, 1+3+3, m.Units())
	require.NoError(t, f.Allocate(8*page, page))
	require.Equal(t, 1+3+3+1, m.Units())
}

func TestNames(t *testing.T) {
	m := vfs.NewMem(0)
	defer m.Release()
	f := create(t, m, "dir/new")
	write(t, f, []byte("new"), 0)
	require.NoError(t, f.Datasync())
	there := func(p vfs.Policy, name string) (found, lost int) {
		for seed := range 64 {
			img := m.Crash(p, uint64(seed))
			if read(t, img, name) != nil {
				found++
			} else {
				lost++
			}
			img.Release()
		}
		return found, lost
	}
	found, _ := there(vfs.KeepNone, "dir/new")
	require.Zero(t, found, "a name never synced vanishes")
	_, lost := there(vfs.KeepAll, "dir/new")
	require.Zero(t, lost)
	for _, p := range []vfs.Policy{vfs.KeepPrefix, vfs.KeepSuffix, vfs.KeepRandomPages, vfs.KeepRandomSectors} {
		found, lost = there(p, "dir/new")
		require.NotZero(t, found, p)
		require.NotZero(t, lost, p)
	}

	failNext(m, vfs.OpSyncDir, syscall.EIO)
	require.ErrorIs(t, m.SyncDir("dir/new"), syscall.EIO)
	m.OnOp(nil)
	require.NoError(t, m.SyncDir("elsewhere/x"))
	require.Equal(t, 1, m.Units())
	require.NoError(t, m.SyncDir("dir/any"))
	require.Zero(t, m.Units())

	require.NoError(t, m.Remove("dir/new"))
	write(t, create(t, m, "dir/new"), []byte("second"), 0)
	require.Equal(t, 4, m.Units()) // a sector, the size, the removal, the new name
	for mask := range uint64(1) << 4 {
		img := m.CrashSubset(mask)
		got := string(read(t, img, "dir/new"))
		img.Release()
		switch mask >> 2 {
		case 0:
			require.Equal(t, "new", got)
		case 1:
			require.Equal(t, "", got)
		default:
			require.Equal(t, []string{"", "", "\x00\x00\x00\x00\x00\x00", "second"}[mask&3], got)
		}
	}
}

func TestLastPageOfSeveralFiles(t *testing.T) {
	m, f := newMem(t)
	write(t, create(t, m, "other"), []byte("other"), 0)
	write(t, f, []byte("db"), 0)
	img := m.Crash(vfs.KeepLastPage, 0)
	defer img.Release()
	require.Equal(t, "db", string(read(t, img, "db")))
	require.Equal(t, "\x00\x00\x00\x00\x00", string(read(t, img, "other")))
}

func TestSpaceAfterCrash(t *testing.T) {
	m, f := newMem(t)
	require.NoError(t, f.Allocate(0, 4*page))
	require.NoError(t, f.Datasync())
	require.NoError(t, f.Punch(0, page))
	require.NoError(t, f.Allocate(4*page, 4*page))
	blocks := func(p vfs.Policy) int64 {
		img := m.Crash(p, 0)
		defer img.Release()
		n, err := open(t, img, "db", os.O_RDONLY).Blocks()
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 4*page, blocks(vfs.KeepNone))
	require.EqualValues(t, 7*page, blocks(vfs.KeepAll))
}

func TestReleasedMem(t *testing.T) {
	m, f := newMem(t)
	m.Release()
	require.ErrorIs(t, f.Datasync(), os.ErrClosed)
	_, err := f.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = m.Open("db", os.O_RDWR|os.O_CREATE, 0)
	require.True(t, errors.Is(err, os.ErrClosed))
}
