package mvcc

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestPartsFollowALoad: dirty pages of a load do not make the overwrites after it flush everything at once. A tree
// that grows everywhere does.
func TestPartsFollowALoad(t *testing.T) {
	inTurn(t)
	e := newEngine(t, Options{Manual: true, Durability: Buffered, RedoLimit: 8 << 20})
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(n int, key func() []byte) {
		for range n / 100 {
			tx := begin(t, e, TxOptions{})
			for range 100 {
				require.NoError(t, tx.Put(key(), make([]byte, 240)))
			}
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, e.tree.withMerged(e.log.writeRedo))
	}
	parts := func() (n int, musts int64) {
		require.NoError(t, e.tree.withMerged(func() error {
			e.pressure.noteRedo()
			n, musts = e.pressure.parts(), e.pages.MustPages()
			return nil
		}))
		return n, musts
	}
	const records = 60_000
	i := 0
	load := func() []byte { i++; return fmt.Appendf(nil, "%08d", i) }
	overwrite := func() []byte { return fmt.Appendf(nil, "%08d", 1+rng.IntN(records)) }
	write(records*3/4, load)
	n, _ := parts()
	require.Equal(t, 1, n)
	require.NoError(t, e.Checkpoint())
	write(records/4, load)
	_, left := parts()
	require.Greater(t, left, int64(500))
	write(12_000, overwrite)
	n, musts := parts()
	require.Equal(t, left, musts)
	require.Greater(t, n, 4)
	require.NoError(t, e.Housekeep())
	s, err := e.Stats()
	require.NoError(t, err)
	require.Positive(t, s.Pages.Parts)

	write(12_000, func() []byte { return fmt.Appendf(nil, "%08d %d", 1+rng.IntN(records), rng.IntN(10)) })
	n, _ = parts()
	require.Equal(t, 1, n)
}

// TestSparseLimit: the more useless pages there are in proportion to live ones, the fuller are the segments that are
// emptied. Redo alone does not count as useless.
func TestSparseLimit(t *testing.T) {
	last := int64(0)
	for _, sparse := range []int64{0, 50, 100, 150, 1000} {
		n := sparseLimit(logstore.Account{Live: 1000, Log: 5000, Sparse: sparse, Waiting: 1000, Held: 1000}, 256)
		require.True(t, n > last && n < 256 || n == last && sparse == 1000, "%d with %d", n, sparse)
		last = n
	}
	require.EqualValues(t, 32, sparseLimit(logstore.Account{Live: 1000, Log: 5000}, 256))
	require.EqualValues(t, 32, sparseLimit(logstore.Account{Live: 1000, Sparse: 200}, 256))
	require.EqualValues(t, 32, sparseLimit(logstore.Account{}, 256))
}

// TestPartsAreFolded: the translation table has names of pages that were written lately, not of all pages ever
// written.
func TestPartsAreFolded(t *testing.T) {
	inTurn(t)
	opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 1 << 20}
	opts.PartBytes = 64 << 10
	e := newEngine(t, opts)
	const records = 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < records; i += 100 {
		tx := begin(t, e, TxOptions{})
		for j := range 100 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i+j), make([]byte, 400)))
		}
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, e.Checkpoint())
	names := 0
	for range 600 {
		tx := begin(t, e, TxOptions{})
		for range 40 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", rng.IntN(records)), make([]byte, 400)))
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, e.Housekeep())
		names += len(e.pages.EncodeTable()) / 16
	}
	s, err := e.Stats()
	require.NoError(t, err)
	require.Greater(t, s.Pages.Parts, uint64(20))
	names /= 600
	t.Logf("%d parts; %d of %d pages have a name in the table", s.Pages.Parts, names, s.Space.LiveBytes/4096)
	require.Less(t, int64(names), s.Space.LiveBytes/4096/16, "on average")
}

// TestPartsAreFilledUp: records are put and deleted at random, and half of all keys exist at any time. The leaves are
// more than half full.
func TestPartsAreFilledUp(t *testing.T) {
	inTurn(t)
	opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 1 << 20}
	opts.PartBytes, opts.Store.SegmentPages = 64<<10, 32
	e := newEngine(t, opts)
	const records = 40_000
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	write := func(n int, do func(tx *Tx, i int) error) {
		for i := 0; i < n; i += 400 {
			tx := begin(t, e, TxOptions{})
			for j := range 400 {
				require.NoError(t, do(tx, i+j))
			}
			require.NoError(t, tx.Commit())
			require.NoError(t, e.Housekeep())
		}
	}
	there := make([]bool, records)
	write(records, func(tx *Tx, i int) error { there[i] = true; return tx.Put(key(i), make([]byte, 100)) })
	require.NoError(t, e.Checkpoint())
	rng := rand.New(rand.NewPCG(1, 2))
	write(3*records, func(tx *Tx, _ int) error {
		i := rng.IntN(records)
		if there[i] = !there[i]; there[i] {
			return tx.Put(key(i), make([]byte, 100))
		}
		return tx.Delete(key(i))
	})
	s, err := e.Stats()
	require.NoError(t, err)
	payload, _, known := e.pages.PayloadBytes(e.tree.records)
	require.True(t, known)
	t.Logf("%d parts; %d of %d pages' bytes are records", s.Pages.Parts, payload, s.Space.LiveBytes)
	require.Less(t, s.Space.LiveBytes, payload*17/10)
	require.NoError(t, e.Check(context.Background()))
	left := 0
	for i, is := range there {
		tx := begin(t, e, TxOptions{})
		has, err := tx.Has(key(i))
		tx.Rollback()
		require.NoError(t, err)
		require.Equal(t, is, has)
		if has {
			left++
		}
	}
	require.EqualValues(t, left, e.tree.records)
}

// TestPartOfWhatGoes: commits remove inner nodes while a part is planned, flushed and folded. Names planned before the
// flush are not used after it, because such a name may have been removed or be the address of another page.
func TestPartOfWhatGoes(t *testing.T) {
	inTurn(t)
	const groups, records = 300, 12
	key := func(i int) []byte { // neighbouring keys differ in their last bytes, so separators are long and inner nodes have few children
		return fmt.Appendf(nil, "%08d%s%02d", i/records, strings.Repeat("x", 450), i%records)
	}
	put := func(tx *Tx, i int) error { return tx.Put(key(i), make([]byte, 450)) }
	remove := func(tx *Tx, i int) error { return tx.Delete(key(i)) }
	every := 1
	if testing.Short() {
		every = 4
	}
	for _, folded := range []bool{false, true} { // inner nodes have born names, or addresses as names
		for at := 0; at < 25; at += every { // the step of the part at which the commits come
			t.Run(fmt.Sprint(folded, at), func(t *testing.T) {
				var e *Engine
				change := func(from, to, per int, do func(tx *Tx, i int) error) {
					for i := from; i < to; i += per {
						tx := begin(t, e, TxOptions{})
						for j := i; j < i+per; j++ {
							require.NoError(t, do(tx, j))
						}
						require.NoError(t, tx.Commit())
					}
				}
				steps := -1 // of the part that is flushed
				opts := Options{Manual: true, RedoLimit: 64 << 20, Store: logstore.Options{SegmentPages: 16}}
				opts.PartBytes = 64 << 10
				opts.Step = func(StepPoint) {
					switch {
					case steps == at:
						change(groups/3*records, groups/2*records, records, remove)
						steps++
					case steps >= 0: // a transaction begins and ends, and no snapshot keeps the removed nodes
						change(0, 1, 1, put)
						steps++
					}
				}
				e = newEngine(t, opts)
				change(0, groups*records, records, put)
				e.checkpoints.mu.Lock()
				require.NoError(t, e.flusher.flush())
				e.checkpoints.mu.Unlock()
				if folded {
					require.NoError(t, e.Checkpoint())
				}
				tx := begin(t, e, TxOptions{}) // a record in each leaf, except some leaves that stay clean and are added to the part step by step
				for i := 0; i < groups*records; i += 4 {
					if i/records%8 != 0 {
						require.NoError(t, put(tx, i))
					}
				}
				require.NoError(t, tx.Commit())
				e.checkpoints.mu.Lock()
				steps = 0
				err := e.flusher.flushPart(1)
				done := steps
				steps = -1
				e.checkpoints.mu.Unlock()
				require.NoError(t, err)
				require.NoError(t, e.Checkpoint())
				n, err := e.Len()
				require.NoError(t, err)
				require.Equal(t, done <= at, n == groups*records)
				require.NoError(t, e.Check(t.Context()))
			})
		}
	}
}

// TestFirstPartIsOfAll: after a large flush the first part takes everything dirty if that is little in comparison.
// Then redo starts after what that flush wrote, and does not keep it from reuse. Later flushes are in parts.
func TestFirstPartIsOfAll(t *testing.T) {
	inTurn(t)
	opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 1 << 20}
	opts.PartBytes = 64 << 10
	e := newEngine(t, opts)
	const records, apart = 20_000, 50
	put := func(from, to, step int) {
		tx := begin(t, e, TxOptions{})
		for i := from; i < to; i += step {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 400)))
		}
		require.NoError(t, tx.Commit())
	}
	for i := 0; i < records; i += 1000 {
		put(i, i+1000, 1)
	}
	e.checkpoints.mu.Lock()
	require.NoError(t, e.flusher.flush())
	require.NoError(t, e.checkpoints.checkpoint())
	e.checkpoints.mu.Unlock()
	housekeep := func() (parts uint64, dirty int64) {
		put(0, records, apart)
		require.NoError(t, e.tree.withMerged(func() error {
			require.True(t, e.pressure.flushDue())
			require.Greater(t, e.pressure.parts(), 1)
			return nil
		}))
		require.NoError(t, e.Housekeep())
		s, err := e.Stats()
		require.NoError(t, err)
		return s.Pages.Parts, e.pages.DirtyBytes()
	}
	parts, dirty := housekeep()
	require.Zero(t, parts)
	require.Zero(t, dirty)
	require.Equal(t, e.pages.Base(), e.pages.RedoStart())
	parts, dirty = housekeep()
	require.NotZero(t, parts)
	require.NotZero(t, dirty)
	require.NoError(t, e.Check(t.Context()))
}

// TestFirstRound: after a load the parts begin where the load's last flush began, if few of the pages that it wrote
// are dirty again. No page of that flush is moved to free its segment, because the segment is not reused before the
// round ends.
func TestFirstRound(t *testing.T) {
	inTurn(t)
	opts := Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 1 << 20}
	opts.PartBytes = 64 << 10
	e := newEngine(t, opts)
	const records, flushes = 20_000, 4
	put := func(from, to, step int) {
		tx := begin(t, e, TxOptions{})
		for i := from; i < to; i += step {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 400)))
		}
		require.NoError(t, tx.Commit())
	}
	func() {
		e.checkpoints.mu.Lock()
		defer e.checkpoints.mu.Unlock()
		for i := range flushes {
			put(i*records/flushes, (i+1)*records/flushes, 1)
			require.NoError(t, e.flusher.flush())
			require.NoError(t, e.checkpoints.checkpoint())
		}
		last := records / flushes * (flushes - 1)
		require.Less(t, string(e.flusher.hand), fmt.Sprintf("%08d", last+1))
		require.Greater(t, string(e.flusher.hand), fmt.Sprintf("%08d", last-20), "the leaf before it was split perhaps")
		require.Equal(t, e.flusher.allBase, e.pages.RedoStart())

		put(0, records, 30)
		part, err := e.flusher.planPart(1)
		require.NoError(t, err)
		sparse := func(since uint64) (ids []logstore.PageID) {
			require.NoError(t, e.tree.withMerged(func() error {
				ids = e.pages.SparseLeaves(part, int64(e.store.SegmentPages()), since)
				return nil
			}))
			return ids
		}
		start := e.pages.RedoStart()
		all, old := sparse(math.MaxUint64), sparse(start)
		require.NotEmpty(t, old)
		require.Greater(t, len(all), len(old))
		require.NoError(t, e.flusher.flushPart(e.pressure.parts()))
		require.Equal(t, start, e.pages.RedoStart(), "until the round is over")
	}()
	require.NoError(t, e.Check(t.Context()))
}

// TestPartEndsAtTheFirstLeaf: the last part of a round may end at the beginning of the tree. Then only its own inner
// nodes are folded, not all inner nodes.
func TestPartEndsAtTheFirstLeaf(t *testing.T) {
	inTurn(t)
	const records = 4000
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	e := newEngine(t, Options{Thresholds: Thresholds{KeepInline: true}, Manual: true, RedoLimit: 64 << 20, Store: logstore.Options{SegmentPages: 16}})
	tx := begin(t, e, TxOptions{})
	for i := range records {
		require.NoError(t, tx.Put(key(i), make([]byte, 1500)))
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, e.tree.mergeAll())
	snap := e.pages.At(e.marks.applied.Load())
	all, err := snap.PlanPart(nil, records)
	require.NoError(t, err)
	everything, _, err := snap.PlanPartFolds(all)
	require.NoError(t, err)
	require.Greater(t, len(everything), 4)

	from := key(records * 3 / 4)
	for most := 1; ; most++ { // leaves from there to the end, and no more
		part, err := snap.PlanPart(from, most)
		require.NoError(t, err)
		require.Equal(t, most, part.Leaves())
		if bytes.Compare(part.Next, from) > 0 {
			continue
		}
		parents, _, err := snap.PlanPartFolds(part)
		require.NoError(t, err)
		require.LessOrEqual(t, len(parents), len(everything)/2)
		require.Equal(t, everything[0], parents[len(parents)-1])
		break
	}
}

const sparseRecords, sparseLeaf = 20_000, 9 // of newSparse: number of records, and of records per leaf

// newSparse returns an engine with small parts and small segments, of which an eighth is live in each, and a function
// that overwrites records.
func newSparse(t *testing.T) (e *Engine, put func(from, to int, which func(i int) bool)) {
	inTurn(t)
	opts := Options{Manual: true, RedoLimit: 64 << 20, Store: logstore.Options{SegmentPages: 16}}
	opts.PartBytes, opts.KeepInline = 64<<10, true
	e = newEngine(t, opts)
	put = func(from, to int, which func(i int) bool) {
		tx := begin(t, e, TxOptions{})
		for i := from; i < to; i++ {
			if which(i) {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 400)))
			}
		}
		require.NoError(t, tx.Commit())
	}
	for i := 0; i < sparseRecords; i += 1000 {
		put(i, i+1000, func(int) bool { return true })
	}
	require.NoError(t, e.Checkpoint())
	put(0, sparseRecords, func(i int) bool { return i%sparseLeaf == 0 && i/sparseLeaf%8 != 0 }) // an eighth of each segment stays live
	e.checkpoints.mu.Lock()
	for range mostParts / 2 { // some leaves in parts, and the others at once
		n, err := e.flusher.parts()
		require.NoError(t, err)
		require.NoError(t, e.flusher.flushNext(n, false))
	}
	require.NoError(t, e.flusher.beginAnew())
	e.checkpoints.mu.Unlock()
	require.NoError(t, e.Checkpoint())
	return e, put
}

// TestCleanedAreUnnamed: leaves that the cleaner has moved get new names after the flush, wherever the parts are in
// the tree, because their old names keep the emptied segments from reuse.
func TestCleanedAreUnnamed(t *testing.T) {
	const records, leaf = sparseRecords, sparseLeaf
	e, put := newSparse(t)
	sparse := e.store.Account().Sparse
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	require.NoError(t, e.cleaner.clean(1<<20))
	for range 3 {
		put(0, records/16, func(i int) bool { return i%leaf == 0 })
		e.flusher.hand = nil
		require.NoError(t, e.flusher.flushNext(8, false))
		require.NoError(t, e.checkpoints.checkpointTwice())
		a := e.store.Account()
		t.Logf("%d pages of sparse segments; then %d, and %d of emptied ones that names keep", sparse, a.Sparse, a.Named)
	}
	require.Greater(t, sparse, int64(500))
	require.Less(t, e.store.Account().Named, sparse/16)
}

// TestSparsePagesMove: pages that are alone in their segments are flushed with a part to which they do not belong, up
// to a quarter of that part.
func TestSparsePagesMove(t *testing.T) {
	const records, leaf = sparseRecords, sparseLeaf
	e, put := newSparse(t)
	func() {
		e.checkpoints.mu.Lock()
		defer e.checkpoints.mu.Unlock()
		nearlyEmpty := func() (segments int, pages int64) {
			victims, _ := e.store.Victims(nil, false)
			for _, v := range victims {
				if v.Live*sparseLeast <= int64(e.store.SegmentPages()) {
					segments++
					pages += v.Live
				}
			}
			return segments, pages
		}
		before, pages := nearlyEmpty()
		require.Greater(t, before, 50)
		for parts := 1; before > 0; parts++ {
			require.Less(t, parts, 20)
			put(0, records, func(i int) bool { return i%leaf == 0 && (i < records/16 || i/leaf%16 == 0) }) // dirties half of the sparse pages, which are after the part in key order
			e.flusher.hand = nil
			part, err := e.flusher.planPart(6)
			require.NoError(t, err)
			cleaned := e.flusher.moved.Load()
			require.NoError(t, e.flusher.flushPart(6))
			require.NoError(t, e.checkpoints.checkpointTwice())
			after, left := nearlyEmpty()
			t.Logf("%d leaves, %d others: %d such segments with %d pages, then %d with %d", part.Leaves(), e.flusher.moved.Load()-cleaned, before, pages, after, left)
			require.Less(t, after, before)
			require.LessOrEqual(t, pages-left, int64(part.Leaves()/sparseShare+part.Leaves()/8+1), "and those of the part")
			before, pages = after, left
		}
	}()
	require.NoError(t, e.Check(t.Context()))
}

// TestSparsePagesAreCountedOnce: sparse pages that were clean have to be written by the next flush and are counted as
// such. Sparse pages that commits have made dirty are added to the part and counted once. No more room is reserved.
// Without room no sparse page is added.
func TestSparsePagesAreCountedOnce(t *testing.T) {
	e, put := newSparse(t)
	put(0, sparseRecords/16, func(i int) bool { return i%sparseLeaf == 0 && i/sparseLeaf%8 != 0 })
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	e.flusher.hand = nil
	part, err := e.flusher.planPart(6)
	require.NoError(t, err)
	leaves := part.Leaves()
	join := func(at []logstore.Addr) {
		require.NoError(t, e.tree.withMerged(func() error { e.pages.Join(part, at); return nil }))
	}
	at, err := e.flusher.moveSparsePages(leaves/sparseShare, func(int64) error { return logstore.ErrFull })
	require.NoError(t, err)
	require.Empty(t, at)

	at, err = e.flusher.moveSparsePages(leaves/sparseShare, e.pressure.reserveMore)
	require.NoError(t, err)
	require.NotEmpty(t, at)
	require.Positive(t, e.pages.MustPages())
	join(at)
	require.Equal(t, leaves, part.Leaves())

	put(sparseRecords/2, sparseRecords, func(i int) bool { return i%sparseLeaf == 0 && i/sparseLeaf%8 == 0 })
	require.NoError(t, e.tree.mergeAll())
	at, err = e.flusher.moveSparsePages(1000, e.pressure.reserveMore)
	require.NoError(t, err)
	join(at)
	joined := part.Leaves()
	require.Greater(t, joined, leaves+20)
	join(at)
	require.Equal(t, joined, part.Leaves())
}

// TestFewSegmentsAreSearched: if segments cannot be emptied because they have value runs, a part searches few of them,
// not all.
func TestFewSegmentsAreSearched(t *testing.T) {
	const most, full = 20, 32
	var victims []logstore.Victim
	for n := range uint32(1000) {
		victims = append(victims, logstore.Victim{Segment: n, Live: 2})
	}
	looks := 0
	search := func(runs func(segment uint32) int) []logstore.Addr {
		looks = 0
		return sparsePages(victims, most, full, func(segment uint32) (tree, values []logstore.Addr, others int64) {
			looks++
			return make([]logstore.Addr, 2-runs(segment)), make([]logstore.Addr, runs(segment)), 0
		})
	}
	require.Empty(t, search(func(uint32) int { return 1 }))
	require.LessOrEqual(t, looks, most*searchSparse/2)
	require.Len(t, search(func(uint32) int { return 0 }), most)
	require.Equal(t, most/2, looks)
	require.Len(t, search(func(segment uint32) int { return int(segment % 2) }), most, "behind others")
}

// TestSpareOfTheFirstRound: in the first round of parts the free space that is kept covers the redo and the parts that
// are still to be written. In later rounds it covers what varies from turn to turn, and at the end it is zero.
func TestSpareOfTheFirstRound(t *testing.T) {
	inTurn(t)
	const records, limit = 20_000, 4 << 20
	opts := Options{Manual: true, Durability: Durable, RedoLimit: limit}
	opts.PartBytes = 64 << 10
	e := newEngine(t, opts)
	commit := func(from, step int) {
		for at := 0; at < records; at += 2000 {
			tx := begin(t, e, TxOptions{})
			for i := at + from; i < at+2000; i += step {
				require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 100)))
			}
			require.NoError(t, tx.Commit())
		}
	}
	growth := func() (bytes int64) {
		require.NoError(t, e.tree.withMerged(func() error { bytes = e.flusher.turnGrowth() * logstore.PageSize; return nil }))
		return bytes
	}
	for i := range 20 {
		commit(i, 20)
	}
	require.NoError(t, e.Checkpoint())
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	commit(7, 20) // a record in each leaf
	first := growth()
	require.Greater(t, first, limit+e.pages.DirtyBytes()*3/4)
	const parts = 4
	for range parts - 2 {
		require.NoError(t, e.flusher.flushPart(parts))
	}
	commit(3, 2)
	later := growth()
	require.Less(t, later, first*3/4)
	require.Greater(t, later, int64(limit/2))
	for range parts {
		require.NoError(t, e.flusher.flushPart(parts))
	}
	require.NotEqual(t, e.flusher.allBase, e.pages.RedoStart())
	require.EqualValues(t, limit/unevenShare, growth())
	e.readers.ending.Store(true)
	require.Zero(t, growth())
	e.readers.ending.Store(false)
}

// TestPartsAreStatedAhead: a file has the flag for incremental flushes as soon as it is large enough for them. If the
// flag came only once much is dirty, all of that would be flushed at once, whatever room there is.
func TestPartsAreStatedAhead(t *testing.T) {
	inTurn(t)
	e := newEngine(t, Options{Manual: true})
	for i := range 2*partBytes/100/1000 + 1 {
		tx := begin(t, e, TxOptions{})
		for j := range 1000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "%08d", i*1000+j), make([]byte, 100)))
		}
		require.NoError(t, tx.Commit())
		require.NoError(t, e.Checkpoint())
	}
	require.NoError(t, e.log.withLog(func() error {
		require.Less(t, e.tree.sizes().dirty, int64(partBytes))
		require.Equal(t, 1, e.pressure.mayParts())
		return nil
	}))
	put(t, e, "more", "")
	require.NoError(t, e.Checkpoint())
	require.True(t, e.store.RedoBefore())
}
