package dbm

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	salvageFiles = flag.Int("salvage.files", 0, "damaged files that are salvaged, instead of 20")
	salvageFirst = flag.Uint64("salvage.first", 1, "first seed of damaged files")
	salvageTrace = flag.Bool("salvage.trace", false, "tell what each damaged file lost")
)

// A database for tests of salvage has records whose values show, in each 256 bytes, their key and version.
func salvageValue(key string, version, size int) []byte {
	token := fmt.Sprintf("<%x:%s>", version, key[:min(len(key), 24)])
	value := bytes.Repeat([]byte(token), size/len(token)+1)
	return value[:max(size, len(token))]
}

// salvageHistory is a database in memory, with the contents of its file and all that was committed.
type salvageHistory struct {
	file     []byte
	groups   map[uint64][]logstore.Addr // pages of each group
	salted   salted
	versions map[string][][]byte // all committed versions of a key; nil is a deletion
}

func (h *salvageHistory) newest(key string) []byte { return h.versions[key][len(h.versions[key])-1] }

const salvagePath = "a.fdbm"

// newSalvageHistory uses a database in all ways that programs do: single puts and deletes, batches, transactions that
// leave memory, values of all kinds, long keys, checkpoints and compaction. Then it closes the database, or copies the
// file as a kill would leave it. Background work runs in steps between commits, and may be unfinished at the end. So
// the pages of the file depend on the seed alone, except for the salts of its segments.
func newSalvageHistory(t testing.TB, seed uint64) *salvageHistory {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 77))
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	defer mem.Release()
	opts := &Options{Durability: Durability(rng.IntN(3)), MemoryLimit: 1 << 20, RedoLimit: 1 << 20}
	if rng.IntN(3) == 0 {
		opts.MemoryLimit, opts.RedoLimit = 64<<20, 0
	}
	engine, background := opts.engine(), &stepper{}
	engine.CutFrom, engine.Manual, engine.Step = 1, true, background.step
	db, err := openEngine(mem, salvagePath, engine)
	require.NoError(t, err)
	closed := false
	finish := func() { require.NoError(t, background.finish()) }
	defer func() {
		if finish(); !closed {
			require.NoError(t, db.Close())
		}
	}()
	work := func() {
		if !background.active {
			background.start(db.engine.Housekeep, nil)
		}
		for range rng.IntN(8) {
			require.NoError(t, background.advance())
		}
	}
	h := &salvageHistory{versions: map[string][][]byte{}}
	keys := 500 + rng.IntN(4000)
	key := func() string {
		n := rng.IntN(keys)
		k := fmt.Sprintf("%06d", n*7919%keys)
		if n%211 == 3 {
			k += strings.Repeat("long", 400)
		}
		return k
	}
	size := func() int {
		switch n := rng.IntN(1000); {
		case n == 0:
			return 1<<20 + rng.IntN(1<<20)
		case n < 10:
			return 3000 + rng.IntN(60_000)
		case n < 150:
			return 256 + rng.IntN(1500)
		}
		return rng.IntN(120)
	}
	put := func(tx *Tx, k string, size int) ([]byte, error) {
		v := salvageValue(k, len(h.versions[k]), size)
		return v, tx.Put([]byte(k), v)
	}
	batch := func(n int, deletes float64) {
		pending := map[string][]byte{}
		require.NoError(t, db.Update(func(tx *Tx) error {
			for range n {
				k := key()
				if rng.Float64() < deletes {
					pending[k] = nil
					if err := tx.Delete([]byte(k)); err != nil {
						return err
					}
					continue
				}
				v, err := put(tx, k, size())
				if err != nil {
					return err
				}
				pending[k] = v
			}
			return nil
		}))
		for k, v := range pending {
			h.versions[k] = append(h.versions[k], v)
		}
		work()
	}
	for range 6 + rng.IntN(20) {
		switch rng.IntN(10) {
		case 0, 1, 2:
			for range rng.IntN(150) {
				batch(1, 0.2)
			}
		case 3, 4, 5:
			batch(1+rng.IntN(300), 0.2)
		case 6:
			batch(1000+rng.IntN(3000), 0.1)
		case 7: // an interval of neighboring keys is deleted
			from := rng.IntN(keys)
			pending := []string{}
			if from%2 == 0 { // as a range
				low, high := fmt.Sprintf("%06d", from), fmt.Sprintf("%06d", from+100+rng.IntN(300))
				for k, versions := range h.versions {
					if k >= low && k < high && versions[len(versions)-1] != nil {
						pending = append(pending, k)
					}
				}
				require.NoError(t, db.DeleteRange([]byte(low), []byte(high)))
				for _, k := range pending {
					h.versions[k] = append(h.versions[k], nil)
				}
				continue
			}
			require.NoError(t, db.Update(func(tx *Tx) error {
				pending = pending[:0]
				for i := from; i < min(keys, from+100+rng.IntN(300)); i++ {
					k := fmt.Sprintf("%06d", i)
					if len(h.versions[k]) > 0 {
						pending = append(pending, k)
						if err := tx.Delete([]byte(k)); err != nil {
							return err
						}
					}
				}
				return nil
			}))
			for _, k := range pending {
				h.versions[k] = append(h.versions[k], nil)
			}
		case 8:
			finish()
			require.NoError(t, db.Checkpoint())
		case 9:
			if finish(); rng.IntN(3) == 0 {
				require.NoError(t, db.Compact(context.Background(), nil))
			}
		}
	}
	require.NoError(t, db.Sync())
	if rng.IntN(2) == 0 {
		finish()
		require.NoError(t, db.Close())
		closed = true
	}
	image := mem.Clone()
	defer image.Release()
	h.file = fileBytes(t, image)
	h.groups = map[uint64][]logstore.Addr{}
	eachSoundPage(t, h.file, func(a uint64, x logstore.PageHead, span uint64) {
		for i := range span {
			h.groups[x.No] = append(h.groups[x.No], a+i)
		}
	})
	h.salted = saltedPages(t, h.file)
	return h
}

// eachSoundPage calls fn for each sound page of a file that is not damaged.
func eachSoundPage(t testing.TB, file []byte, fn func(a uint64, x logstore.PageHead, span uint64)) {
	t.Helper()
	mem := memoryFile(t, file)
	defer mem.Release()
	pages, err := pagefile.Open(t.Context(), mem, salvagePath, 0)
	require.NoError(t, err)
	defer pages.Close()
	require.NoError(t, pages.EachSegment(func(n uint32) error {
		return pages.EachSound(n, func(a uint64, x logstore.PageHead, p []byte) { fn(a, x, pages.Span(a, &x, p)) })
	}))
}

// memoryFile returns a file system in memory with a file of these contents.
func memoryFile(t testing.TB, file []byte) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	w, err := mem.Open(salvagePath, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	_, err = w.WriteAt(file, 0)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return mem
}

// salvagedRecord is a record with the place where it was found.
type salvagedRecord struct {
	value []byte
	leaf  logstore.Addr
	redo  [2]logstore.Addr
	group uint64
	ref   *btree.Ref
}

// salvageBytes salvages a file with these contents.
func salvageBytes(t testing.TB, file []byte, o salvage.Options) (map[string]salvagedRecord, salvage.Result, error) {
	t.Helper()
	mem := memoryFile(t, file)
	defer mem.Release()
	mem.OnOp(func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpWrite, vfs.OpWriteVec, vfs.OpAllocate, vfs.OpTruncate, vfs.OpPunch, vfs.OpCreate, vfs.OpRemove:
			t.Errorf("salvage changes the damaged file: %v", op.Kind)
		}
		return nil
	})
	f, err := pagefile.Open(t.Context(), mem, salvagePath, 0)
	if err != nil {
		return nil, salvage.Result{}, err
	}
	defer f.Close()
	records := map[string]salvagedRecord{}
	o.Emit = func(r salvage.Record) error {
		value := r.Value
		if r.Large != nil {
			var err error
			if value, err = io.ReadAll(r.Large); err != nil {
				return err
			}
		}
		if int64(len(value)) != r.Size {
			t.Errorf("%d bytes of a value of %d", len(value), r.Size)
		}
		if before, ok := records[string(r.Key)]; ok {
			t.Errorf("%.20q came twice: %.40q, then %.40q", r.Key, before.value, value)
		}
		records[string(r.Key)] = salvagedRecord{bytes.Clone(value), r.Page, r.Redo, r.Group, r.Ref}
		return nil
	}
	result, err := salvage.Run(context.Background(), f, o)
	return records, result, err
}

// TestSalvageWhole: from an undamaged file, closed or killed, exactly its records are recovered. In the last file, a
// flush contains a page under its own address, and the end of that flush retires the page's older name.
func TestSalvageWhole(t *testing.T) {
	inTurn(t)
	for _, seed := range []uint64{0, 1, 2, 3, 4, 5, 2629} {
		h := newSalvageHistory(t, seed)
		records, result, err := salvageBytes(t, h.file, salvage.Options{Missing: func(m salvage.Missing) { t.Errorf("seed %d: missing: %+v", seed, m) }})
		require.NoError(t, err)
		require.Equal(t, int(result.Records), len(records))
		for key := range h.versions {
			want := h.newest(key)
			got, ok := records[key]
			if ok != (want != nil) || !bytes.Equal(got.value, want) {
				t.Fatalf("seed %d: %.20q: %.40q, want %.40q", seed, key, got.value, want)
			}
			delete(records, key)
		}
		require.Empty(t, records)
	}
}

// damagePages changes pages in a copy of a file: random bits and sectors, overwritten parts, and the length of the
// file. Superblocks and segment headers are among them.
func damagePages(rng *rand.Rand, file []byte) (bad []byte, what string) {
	bad = bytes.Clone(file)
	noise := func(from, to int) {
		for i := from; i < min(to, len(bad)); i++ {
			bad[i] = byte(rng.Uint32())
		}
	}
	for range 1 + rng.IntN(3) {
		count := len(bad) / logstore.PageSize // the file may be shorter by now
		n := 1 + rng.IntN(1+count/50)
		switch rng.IntN(8) {
		case 0, 1:
			what += fmt.Sprintf("%d bits; ", n)
			for range n {
				bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			}
		case 2, 3:
			what += fmt.Sprintf("%d sectors; ", n)
			for range n {
				at := rng.IntN(len(bad)) / 512 * 512
				if rng.IntN(2) == 0 {
					noise(at, at+512)
				} else {
					clear(bad[at:min(at+512, len(bad))])
				}
			}
		case 4:
			at, length := rng.IntN(count), 1+rng.IntN(1+count/10)
			what += fmt.Sprintf("%d pages from %d on; ", length, at)
			if rng.IntN(2) == 0 {
				noise(at*logstore.PageSize, (at+length)*logstore.PageSize)
			} else {
				clear(bad[at*logstore.PageSize : min((at+length)*logstore.PageSize, len(bad))])
			}
		case 5:
			if at := len(bad)/2 + rng.IntN(len(bad)/2); len(bad) == len(file) {
				what += fmt.Sprintf("cut at %d; ", at)
				bad = bad[:at]
			}
		case 6:
			what += "superblocks; "
			clear(bad[:1024])
			noise(logstore.PageSize, logstore.PageSize+512)
		case 7:
			for n := range 1 + count/256 {
				if rng.IntN(3) > 0 {
					continue
				}
				at := n * 256
				if n == 0 {
					at = 2
				}
				what += fmt.Sprintf("header of segment %d; ", n)
				noise(at*logstore.PageSize, (at+1)*logstore.PageSize)
			}
		}
	}
	return bad, what
}

// changedPages returns which pages of a file differ in a copy.
func changedPages(file, bad []byte) map[logstore.Addr]bool {
	pages := map[logstore.Addr]bool{}
	for a := range len(file) / logstore.PageSize {
		at, end := a*logstore.PageSize, (a+1)*logstore.PageSize
		if end > len(bad) || !bytes.Equal(file[at:end], bad[at:end]) {
			pages[logstore.Addr(a)] = true
		}
	}
	return pages
}

// carriers returns the pages that contain the newest version of a record: its leaf and the pages of its value, or
// those of its redo record if it is not in a leaf yet.
func (h *salvageHistory) carriers(r salvagedRecord) (pages []logstore.Addr) {
	page := func(a logstore.Addr) []byte { return h.file[a*logstore.PageSize : (a+1)*logstore.PageSize] }
	if r.leaf != 0 {
		pages = append(pages, r.leaf)
	}
	for a := r.redo[0]; a < r.redo[1]; a++ {
		pages = append(pages, a)
	}
	if r.ref == nil {
		return pages
	}
	if r.ref.Kind == btree.Logged {
		a := logstore.Place(r.ref.ID).Addr()
		for i := range 1 + logstore.Addr(page(a)[9]) {
			pages = append(pages, a+i)
		}
		return pages
	}
	length := le.Uint64(page(r.ref.ID)[logstore.MuxSize:])
	for i := range logstore.RunPages(int64(length)) {
		pages = append(pages, r.ref.ID+logstore.Addr(i))
	}
	if r.ref.Kind == btree.Extents {
		payload := h.file[r.ref.ID*logstore.PageSize+logstore.RunPayloadAt:][:length]
		extents, err := logstore.GetExtents(payload)
		if err != nil {
			panic(err)
		}
		for _, x := range extents {
			for i := range x.Pages() {
				pages = append(pages, x.Addr+logstore.Addr(i))
			}
		}
	}
	return pages
}

// TestSalvageDamaged damages files and compares the recovered records with what was committed.
//
//   - A record is undamaged if all pages that contain its newest version are: the leaf and the pages of the value,
//     or, if it is not in a leaf yet, the pages of its redo record, unless the group is the newest one and damaged. And
//     the salts in their checksums must be known, see salted: under an unknown one, every page is as good as damaged.
//     Over all files, at least 999 of 1,000 undamaged records are recovered.
//   - Nothing is invented: each recovered record was committed like that. It is the newest version, or an older one
//     if a page of the newest version or of the group of its redo record is damaged. For at most 1 in 1,000
//     records, it is also an older one if commits are lost and the leaf belongs to a flush whose end is lost too,
//     so that nothing shows which of two versions is newer. A deleted record is recovered only if a page that could
//     show the deletion is damaged, which is one of the log after the checkpoint or the leaf for the key, and then
//     damage is reported.
//   - What is missing is reported: if a record is lost or recovered in an older version, or a deleted one is recovered,
//     damage is reported. One case cannot be told from a file that never had more: every page of all groups after some
//     group is lost, and with them what would show that they were there. Then exactly the state as of that group is
//     recovered, see requireCut.
func TestSalvageDamaged(t *testing.T) {
	inTurn(t)
	files := *salvageFiles
	if files == 0 {
		files = 20
	}
	var sum salvageTally
	var h *salvageHistory
	var whole map[string]salvagedRecord
	for n := range files {
		seed := *salvageFirst + uint64(n)
		if n%3 == 0 { // several kinds of damage for each database
			h = newSalvageHistory(t, seed)
			var err error
			whole, _, err = salvageBytes(t, h.file, salvage.Options{})
			require.NoError(t, err)
		}
		bad, what := damagePages(rand.New(rand.NewPCG(seed, 99)), h.file)
		sum.compare(t, h, whole, bad, fmt.Sprintf("seed %d: %s", seed, what))
	}
	t.Logf("%d files: %+v", files, sum)
	require.Positive(t, sum.lost)
	require.GreaterOrEqual(t, float64(sum.back), 0.999*float64(sum.undamaged))
	require.LessOrEqual(t, sum.odd, 3+sum.undamaged/1000)
}

// TestSalvageLostEnds: the ends of three flushes in a row are lost, and also the redo records with which their leaves
// could be compared. Each of these flushes may have the same base as the one before. Their leaves count nevertheless.
func TestSalvageLostEnds(t *testing.T) {
	inTurn(t)
	const seed = 1645
	h := newSalvageHistory(t, seed)
	whole, _, err := salvageBytes(t, h.file, salvage.Options{})
	require.NoError(t, err)
	bad, what := damagePages(rand.New(rand.NewPCG(seed, 99)), h.file)
	for range 5 { // several times, because a wrong choice among the flushes would be random
		var sum salvageTally
		sum.compare(t, h, whole, bad, what)
		require.Zero(t, sum.odd)
		require.Greater(t, sum.back, 1000)
	}
}

// salvageTally counts the records of damaged files by what happened to them.
type salvageTally struct {
	undamaged, back   int // records whose newest version is undamaged; how many of them were recovered
	lost              int // records that were not recovered
	stale, odd        int // records recovered in an older version; undamaged ones among them
	risen             int // deleted records that were recovered
	withoutCheckpoint int // files
	untold            int // files whose log lost its end without a trace
}

// compare salvages a damaged copy of the file of a history. whole is what is recovered from the undamaged file.
func (sum *salvageTally) compare(t *testing.T, h *salvageHistory, whole map[string]salvagedRecord, bad []byte, what string) {
	pages := changedPages(h.file, bad)
	var told []salvage.Missing
	all, result, err := salvageBytes(t, bad, salvage.Options{Missing: func(m salvage.Missing) { told = append(told, m) }})
	if err != nil {
		require.ErrorIs(t, err, ErrFormat, "%s", what)
		t.Logf("%s: %v", what, err)
		return
	}
	if result.Checkpoint == 0 {
		sum.withoutCheckpoint++
	}
	unknown := h.salted.unknown(pages)
	damaged := func(all []logstore.Addr) bool {
		return slices.ContainsFunc(all, func(a logstore.Addr) bool { return pages[a] || unknown[a] })
	}
	records := maps.Clone(all) // those that were never put remain
	gone, wrong, odd := 0, 0, sum.odd
	for key, versions := range h.versions {
		want := h.newest(key)
		intact := want != nil && !damaged(h.carriers(whole[key]))
		newest := intact // only the newest version is acceptable
		if whole[key].leaf == 0 {
			newest = intact && !damaged(h.groups[whole[key].group])
		}
		if whole[key].leaf == 0 && result.Dropped != 0 && whole[key].group >= result.Dropped {
			intact, newest = false, false // the newest group is damaged, which looks like an incomplete commit
		}
		if intact {
			sum.undamaged++
		}
		got, ok := all[key]
		delete(records, key)
		switch {
		case !ok && want == nil:
		case !ok:
			sum.lost++
			wrong++
			if intact {
				gone++
				if *salvageTrace {
					t.Logf("%s: %.20q of leaf %d is gone", what, key, whole[key].leaf)
				}
			}
		case bytes.Equal(got.value, want):
			if intact {
				sum.back++
			}
		case !slices.ContainsFunc(versions, func(v []byte) bool { return v != nil && bytes.Equal(v, got.value) }):
			t.Errorf("%s: %.20q has the value %.40q, which was never committed", what, key, got.value)
		case newest && result.LostGroups > 0:
			sum.odd++
		case newest:
			t.Errorf("%s: %.20q has the older value %.40q, and %.40q is undamaged in leaf %d", what, key, got.value, want, whole[key].leaf)
		case want == nil:
			sum.risen++
			wrong++
		default:
			sum.stale++
			wrong++
		}
	}
	for key := range records {
		t.Errorf("%s: %.20q was never put", what, key)
	}
	if wrong > 0 && len(told) == 0 && result.Dropped == 0 {
		sum.untold++
		h.requireCut(t, all, result.Newest, fmt.Sprintf("%s: %d records are missing or older, and nothing is told: %+v", what, wrong, result))
	}
	if odd = sum.odd - odd; gone+odd > 0 || *salvageTrace {
		t.Logf("%s: of %d records, %d undamaged ones are gone, %d older: %+v", what, len(whole), gone, odd, result)
	}
}

// requireCut: these records are exactly those of the file as it would be if no group after newest had been written.
func (h *salvageHistory) requireCut(t *testing.T, records map[string]salvagedRecord, newest uint64, why string) {
	t.Helper()
	cut := bytes.Clone(h.file)
	for no, pages := range h.groups {
		for _, a := range pages {
			if no > newest {
				clear(cut[a*logstore.PageSize : (a+1)*logstore.PageSize])
			}
		}
	}
	want, _, err := salvageBytes(t, cut, salvage.Options{})
	require.NoError(t, err)
	same := maps.EqualFunc(records, want, func(a, b salvagedRecord) bool { return bytes.Equal(a.value, b.value) })
	if !same || newest == 0 {
		t.Errorf("%s; the state as of group %d has %d records", why, newest, len(want))
	}
}

// TestSalvageLostHeaders: both copies of all segment headers are lost, and both superblocks except for the magic.
// The salts of all segments are found in the checkpoint and in the pages themselves.
func TestSalvageLostHeaders(t *testing.T) {
	inTurn(t)
	h := newSalvageHistory(t, 3)
	file := bytes.Clone(h.file)
	for n := 1; n*256*logstore.PageSize < len(file); n++ {
		clear(file[n*256*logstore.PageSize:][:logstore.PageSize])
	}
	records, result, err := salvageBytes(t, file, salvage.Options{})
	require.NoError(t, err)
	require.Positive(t, result.Headers)
	for key := range h.versions {
		if want := h.newest(key); want != nil {
			require.Equal(t, string(want), string(records[key].value), "%.20q", key)
		}
	}
	clear(file[:2*logstore.PageSize]) // the header of segment 0, which has the UUID, stays
	again, result, err := salvageBytes(t, file, salvage.Options{})
	require.NoError(t, err)
	require.Zero(t, result.Superblocks)
	require.Equal(t, len(records), len(again))
}

// TestSalvageOlder: the newest leaf of a record is damaged, and an older one is still in the file. The older
// version is recovered if that is requested, and is reported.
func TestSalvageOlder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("account"), []byte("100 old")))
	require.NoError(t, db.Put([]byte("gone"), []byte("deleted later")))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Delete([]byte("gone")))
	require.NoError(t, db.Put([]byte("account"), []byte("90 new")))
	require.NoError(t, db.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := 0; ; at++ { // in leaves and in redo records
		i := bytes.Index(file[at:], []byte("90 new"))
		if i < 0 {
			break
		}
		file[at+i] ^= 1
		at += i
	}
	records, result, err := salvageBytes(t, file, salvage.Options{})
	require.NoError(t, err)
	require.Empty(t, records)
	require.Positive(t, result.Damaged)
	var told []string
	records, result, err = salvageBytes(t, file, salvage.Options{Older: true, Missing: func(m salvage.Missing) {
		if m.Scope == salvage.OlderRecord {
			told = append(told, string(m.From))
		}
	}})
	require.NoError(t, err)
	require.Equal(t, "100 old", string(records["account"].value))
	require.Equal(t, int64(len(records)), result.Older)
	require.Contains(t, told, "account")
}

// TestSalvageFile: Salvage makes a database that passes Check. It overwrites nothing, leaves nothing else behind,
// and refuses a file that is open for writing.
func TestSalvageFile(t *testing.T) {
	dir := t.TempDir()
	damaged, fresh := filepath.Join(dir, "damaged.fdbm"), filepath.Join(dir, "fresh.fdbm")
	h := newSalvageHistory(t, 5)
	bad, _ := damagePages(rand.New(rand.NewPCG(5, 5)), h.file)
	require.NoError(t, os.WriteFile(damaged, bad, 0o400))
	names := func() (all []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			all = append(all, e.Name())
		}
		return all
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_, err := Salvage(stopped, damaged, fresh, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"damaged.fdbm"}, names())

	read := int64(0)
	s, err := Salvage(t.Context(), damaged, fresh, &SalvageOptions{Progress: func(n, total int64) {
		require.LessOrEqual(t, n, total)
		read = n
	}})
	require.NoError(t, err)
	require.Positive(t, read)
	require.Equal(t, []string{"damaged.fdbm", "fresh.fdbm"}, names())
	after, err := os.ReadFile(damaged)
	require.NoError(t, err)
	require.True(t, bytes.Equal(bad, after))
	db, err := Open(fresh, nil)
	require.NoError(t, err)
	n, err := db.Len()
	require.NoError(t, err)
	require.Equal(t, s.Records, n)
	require.Positive(t, n)
	require.NoError(t, db.Check(t.Context()))

	_, err = Salvage(t.Context(), fresh, filepath.Join(dir, "another.fdbm"), nil)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, db.Close())
	before, err := os.ReadFile(fresh)
	require.NoError(t, err)
	_, err = Salvage(t.Context(), damaged, fresh, nil)
	require.ErrorIs(t, err, os.ErrExist)
	after, err = os.ReadFile(fresh)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
	require.Equal(t, []string{"damaged.fdbm", "fresh.fdbm"}, names())
}

// TestSalvageCutShort: the newest commit is incomplete because of a crash. It was not committed, so its records are
// not recovered.
func TestSalvageCutShort(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	defer mem.Release()
	db, err := open(mem, salvagePath, &Options{Durability: WriteThrough})
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("whole"), []byte("yes")))
	require.NoError(t, db.Checkpoint())
	value := bytes.Repeat([]byte("cut short "), 20)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 200 {
			if err := tx.Put(fmt.Appendf(nil, "cut %03d", i), value); err != nil {
				return err
			}
		}
		return nil
	}))
	image := mem.Clone()
	defer image.Release()
	require.NoError(t, db.Close())
	f, err := image.Open(salvagePath, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	n, err := f.Size()
	require.NoError(t, err)
	file := make([]byte, n)
	_, err = f.ReadAt(file, 0)
	require.True(t, err == nil || err == io.EOF)
	last := bytes.LastIndex(file, []byte("cut 199"))
	require.Positive(t, last)
	clear(file[last/logstore.PageSize*logstore.PageSize:][:logstore.PageSize])
	records, result, err := salvageBytes(t, file, salvage.Options{})
	require.NoError(t, err)
	require.NotZero(t, result.Dropped)
	require.Len(t, records, 1)
	require.Equal(t, "yes", string(records["whole"].value))
}

// TestSalvageBuilt: a database built by Load, with values of all kinds and long keys, is recovered completely. If
// its root and its checkpoints are lost, everything except the contents of these pages is recovered.
func TestSalvageBuilt(t *testing.T) {
	inTurn(t)
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	records := checkedRecords()
	err = db.Load(t.Context(), func(yield func(k, v []byte) bool) {
		for k, v := range records {
			if !yield([]byte(k), v) {
				return
			}
		}
	}, LoadOptions{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	for range 2 {
		got, _, err := salvageBytes(t, file, salvage.Options{})
		require.NoError(t, err)
		require.Len(t, got, len(records))
		for k, v := range records {
			require.True(t, bytes.Equal(v, got[k].value), "%.20q", k)
		}
		withoutCheckpoints(t, file, true)
	}
}

// withoutCheckpoints clears the superblocks of a file, all checkpoints, and optionally all inner nodes.
func withoutCheckpoints(t *testing.T, file []byte, inner bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.fdbm")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	f, err := pagefile.Open(t.Context(), vfs.OS(), path, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.EachSegment(func(n uint32) error {
		return f.EachSound(n, func(a uint64, h logstore.PageHead, p []byte) {
			if h.Kind == logstore.KindCheckpoint || inner && h.Kind == logstore.KindTree && p[nodeLevel] > 0 {
				clear(file[a*logstore.PageSize:][:logstore.PageSize])
			}
		})
	}))
	clear(file[:2*logstore.PageSize])
}

// TestSalvageWithoutCheckpoint: from a file without superblocks and checkpoints, all records are recovered. Some
// may be older versions, and some deleted ones may be recovered; both were committed once.
func TestSalvageWithoutCheckpoint(t *testing.T) {
	inTurn(t)
	all, newest, older, risen := 0, 0, 0, 0
	for seed := range uint64(6) {
		h := newSalvageHistory(t, 100+seed)
		withoutCheckpoints(t, h.file, seed%2 == 0)
		records, result, err := salvageBytes(t, h.file, salvage.Options{})
		require.NoError(t, err)
		require.Zero(t, result.Checkpoint)
		for key, versions := range h.versions {
			want, got := h.newest(key), records[key].value
			if want != nil {
				all++
			}
			switch _, ok := records[key]; {
			case !ok:
			case bytes.Equal(want, got) && want != nil:
				newest++
			case !slices.ContainsFunc(versions, func(v []byte) bool { return v != nil && bytes.Equal(v, got) }):
				t.Errorf("seed %d: %.20q has the value %.40q, which was never committed", seed, key, got)
			case want == nil:
				risen++
			default:
				older++
			}
		}
	}
	t.Logf("%d records: %d came back, %d in an older version; %d deleted ones came back", all, newest, older, risen)
	require.GreaterOrEqual(t, newest+older, all*99/100)
	require.GreaterOrEqual(t, newest, all*98/100)
}

// TestSalvageNewestRedo: after the checkpoint, several commits write the same keys, so many that each is a record
// group. The newest version is recovered, and deletions are respected.
func TestSalvageNewestRedo(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(1 << 30)
	mem.WithoutCrashes()
	defer mem.Release()
	db, err := open(mem, salvagePath, &Options{Durability: WriteThrough})
	require.NoError(t, err)
	write := func(version int) {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := range 500 {
				key := fmt.Appendf(nil, "%05d", i*17)
				if version == 4 && i%2 == 0 {
					if err := tx.Delete(key); err != nil {
						return err
					}
				} else if err := tx.Put(key, fmt.Appendf(nil, "version %d", version)); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	write(1)
	require.NoError(t, db.Checkpoint())
	for version := 2; version <= 4; version++ {
		write(version)
	}
	image := mem.Clone()
	defer image.Release()
	require.NoError(t, db.Close())
	f, err := image.Open(salvagePath, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	n, err := f.Size()
	require.NoError(t, err)
	file := make([]byte, n)
	_, err = f.ReadAt(file, 0)
	require.True(t, err == nil || err == io.EOF)
	records, _, err := salvageBytes(t, file, salvage.Options{})
	require.NoError(t, err)
	require.Len(t, records, 250)
	for key, r := range records {
		require.Equal(t, "version 4", string(r.value), key)
	}
}

// TestSalvageRange: at each write from before a commit that cuts a range until the cut is in the tree and covered
// by a checkpoint, the records recovered are those with which the file opens.
func TestSalvageRange(t *testing.T) {
	inTurn(t)
	mem := vfs.NewMem(1 << 30)
	defer mem.Release()
	opts := (&Options{Durability: WriteThrough}).engine()
	opts.CutFrom = 1
	db, err := openEngine(mem, salvagePath, opts)
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
	for version := range 2 { // some records are in leaves, others in redo
		for i := range 600 {
			require.NoError(t, db.Put(key(i*(1+2*version)), fmt.Appendf(nil, "version %d", version)))
		}
		if version == 0 {
			require.NoError(t, db.DeleteRange(key(90_000), nil)) // sets the flag that the file may have ranges
			require.NoError(t, db.Checkpoint())
		}
	}
	found := map[int]int{}
	look := func() {
		image := mem.Clone()
		defer image.Release()
		f, err := image.Open(salvagePath, os.O_RDONLY, 0)
		require.NoError(t, err)
		n, err := f.Size()
		require.NoError(t, err)
		file := make([]byte, n)
		_, err = f.ReadAt(file, 0)
		require.True(t, err == nil || err == io.EOF)
		require.NoError(t, f.Close())
		records, _, err := salvageBytes(t, file, salvage.Options{})
		require.NoError(t, err)
		opened, err := openEngine(image, salvagePath, opts)
		require.NoError(t, err)
		require.NoError(t, opened.View(func(tx *Tx) error {
			n := 0
			for k, v := range tx.All() {
				n++
				require.Equal(t, string(v), string(records[string(k)].value), "%s", k)
			}
			require.Len(t, records, n)
			found[n]++
			return tx.Err()
		}))
		require.NoError(t, opened.Close())
	}
	busy := false
	mem.OnOp(func(op vfs.Op) error {
		if !busy && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec) {
			busy = true
			look()
			busy = false
		}
		return nil
	})
	require.NoError(t, db.Update(func(tx *Tx) error {
		if err := tx.DeleteRange(key(100), key(1700)); err != nil {
			return err
		}
		return tx.Put(key(500), []byte("behind"))
	}))
	require.NoError(t, db.Checkpoint())
	look()
	mem.OnOp(nil)
	require.NoError(t, db.Close())
	require.Len(t, found, 2, "before, and after: %v", found)
}
