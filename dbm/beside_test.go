package dbm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

var (
	besideSeeds = flag.Int("beside.seeds", 0, "how many seeds TestBeside runs; 0 = as many as are quick")
	besideFrom  = flag.Uint64("beside.from", 1, "its first seed")
)

// glimpseFS is a file system that calls look while a writer's calls are half done, so that a reader may see any
// prefix of what is being written. After the call with the number kill, all calls fail, as the writer's process is
// dead.
type glimpseFS struct {
	vfs.FS
	rng   *rand.Rand
	look  func() // may be nil
	calls int
	kill  int
	pause int // number of calls during which look is not called

	pauses bool // there may be such calls
	open   []vfs.File

	finish func() // completes the write of a page that is being overwritten; nil if there is none
	reads  int    // number of the reader's reads before finish is called
	again  int    // number of such writes during which look was called

	segmentBytes int64
	thinned      int // punches that leave a part of a segment
}

var errKilled = errors.New("the process is dead")

func (g *glimpseFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := g.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	g.open = append(g.open, f)
	return &glimpseFile{f, g}, nil
}

// die ends the process: its locks are released, and what it has written stays.
func (g *glimpseFS) die() {
	for _, f := range g.open {
		f.Close()
	}
	g.open, g.kill, g.calls = nil, 0, 0
}

func (g *glimpseFS) call() error {
	if g.calls++; g.kill > 0 && g.calls > g.kill {
		return errKilled
	}
	if g.pause--; g.look != nil && g.pause < 0 && g.rng.IntN(4) == 0 {
		g.look()
		if g.pauses && g.rng.IntN(40) == 0 { // so long that the log may be reused
			g.pause = g.rng.IntN(1500)
		}
	}
	return nil
}

type glimpseFile struct {
	vfs.File
	g *glimpseFS
}

// again reports whether a write replaces the last page of the log by one with a longer group.
func (f *glimpseFile) again(p []byte, off int64) bool {
	var before [24]byte
	_, err := f.File.ReadAt(before[:], off)
	return err == nil && len(p) == 4096 && off >= 8192 && p[5]&2 != 0 && bytes.Equal(p[16:24], before[16:])
}

// rewrite is WriteAt for such a page. The system completes it even if the process dies, but a read at the same time
// may return a mixture, once or a few times.
func (f *glimpseFile) rewrite(p []byte, off int64) (int, error) {
	g := f.g
	if cut := g.rng.IntN(len(p)/512) * 512; g.look != nil && cut > 0 {
		if n, err := f.File.WriteAt(p[:cut], off); err != nil {
			return n, err
		}
		g.finish, g.reads = func() { f.File.WriteAt(p, off) }, g.rng.IntN(12)
		g.again++
		g.look()
		g.finish = nil
	}
	return f.File.WriteAt(p, off)
}

// besideFS is what the reader sees.
type besideFS struct {
	vfs.FS
	g *glimpseFS
}

func (b besideFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := b.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &besideFile{f, b.g}, nil
}

type besideFile struct {
	vfs.File
	g *glimpseFS
}

func (f *besideFile) ReadAt(p []byte, off int64) (int, error) {
	if g := f.g; g.finish != nil {
		if g.reads--; g.reads < 0 {
			g.finish()
			g.finish = nil
		}
	}
	return f.File.ReadAt(p, off)
}

// WriteAt writes a prefix, calls look, and then writes everything.
func (f *glimpseFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.g.call(); err != nil {
		return 0, err
	}
	if f.again(p, off) {
		return f.rewrite(p, off)
	}
	if cut := f.g.rng.IntN(len(p)/512+1) * 512; cut > 0 && f.g.rng.IntN(2) == 0 {
		if n, err := f.File.WriteAt(p[:cut], off); err != nil {
			return n, err
		}
		if err := f.g.call(); err != nil {
			return cut, err
		}
	}
	return f.File.WriteAt(p, off)
}

func (f *glimpseFile) Window(off, n int64) (vfs.Window, error) {
	w, err := vfs.OpenWindow(f.File, off, n)
	if err != nil {
		return nil, err
	}
	return &glimpseWindow{w, f}, nil
}

type glimpseWindow struct {
	vfs.Window
	f *glimpseFile
}

// Store copies a part, calls look, and then stores everything. A read of the page meanwhile may return a word that
// never existed, once or a few times.
func (w *glimpseWindow) Store(p []byte, off int64, word uint64, at int64) error {
	g := w.f.g
	if err := g.call(); err != nil {
		return err
	}
	if g.look != nil && g.rng.IntN(3) == 0 {
		if _, err := w.f.File.WriteAt(p[:g.rng.IntN(len(p)+1)], off); err != nil {
			return err
		}
		if err := g.call(); err != nil {
			return err
		}
		if torn := binary.LittleEndian.AppendUint64(nil, word); g.rng.IntN(3) == 0 {
			if _, err := w.f.File.WriteAt(torn[:4], at); err != nil {
				return err
			}
			g.finish, g.reads = func() { w.Window.Store(p, off, word, at) }, g.rng.IntN(12)
			g.again++
			g.look()
			g.finish = nil
		}
	}
	return w.Window.Store(p, off, word, at)
}

func (f *glimpseFile) WriteVec(bufs [][]byte, off int64) error {
	_, err := f.WriteAt(bytes.Join(bufs, nil), off)
	return err
}

func (f *glimpseFile) Datasync() error {
	if err := f.g.call(); err != nil {
		return err
	}
	return f.File.Datasync()
}

func (f *glimpseFile) Truncate(size int64) error {
	if err := f.g.call(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *glimpseFile) Allocate(off, n int64) error {
	if err := f.g.call(); err != nil {
		return err
	}
	return f.File.Allocate(off, n)
}

func (f *glimpseFile) Punch(off, n int64) error {
	if err := f.g.call(); err != nil {
		return err
	}
	if off%f.g.segmentBytes != 0 {
		f.g.thinned++
	}
	return f.File.Punch(off, n)
}

// besideRun has a writer, with a model of what it has committed, and readers beside it.
type besideRun struct {
	t      *testing.T
	rng    *rand.Rand
	mem    *vfs.Mem
	fs     *glimpseFS
	opts   mvcc.Options
	writer *DB
	reader *DB

	committing bool // the writer is committing, opening or closing
	within     bool // in a step of background work, for whose end a commit that cuts a range would wait

	history map[string][]besideValue // the values of each key, by commit
	issued  int                      // number of the newest commit that has begun
	acked   int                      // number of the newest one that has returned
	seen    int                      // number of the newest one that the reader has shown

	slow      *Tx // a transaction held for long, or nil
	slowAt    int
	slowGiven [][2][]byte // slices that it has returned, with copies of their contents

	held []besideHeld // transactions in the writer's process

	looks, tooOld, slowReads, moved, cuts, again int
	parts                                        uint64 // flushes that left leaves behind
	thinned                                      int    // punches that left a part of a segment
}

type besideValue struct {
	commit int
	value  []byte // nil: deleted
}

// at returns the value of a key after a commit, nil for no record.
func (r *besideRun) at(key string, commit int) []byte {
	versions := r.history[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].commit <= commit {
			return versions[i].value
		}
	}
	return nil
}

func (r *besideRun) openWriter() error {
	r.committing = true
	defer func() { r.committing = false }()
	db, err := openEngine(r.fs, "db", r.opts)
	r.writer = db
	return err
}

var commitKey = []byte("~commit")

// commit writes some records and the number of the commit.
func (r *besideRun) commit() error {
	r.committing = true
	defer func() { r.committing = false }()
	r.issued++
	n := r.issued
	err := r.writer.Update(func(tx *Tx) error {
		if r.opts.CutFrom > 0 && n%11 == 5 && !r.within { // not drawn
			if err := r.clearRange(tx, fmt.Sprintf("key %03d", n*37%150), fmt.Sprintf("key %03d", n*37%150+n%60), n); err != nil {
				return err
			}
		}
		for range 1 + r.rng.IntN(4) {
			key := fmt.Sprintf("key %03d", r.rng.IntN(150))
			if r.rng.IntN(20) == 0 {
				key += string(bytes.Repeat([]byte("long"), 500))
			}
			var value []byte
			switch r.rng.IntN(12) {
			case 0:
			case 1:
				value = sized(3000+r.rng.IntN(9000), byte(n))
			case 2:
				value = sized(70_000, byte(n)) // in segments of its own
			default:
				value = sized(r.rng.IntN(300), byte(n))
			}
			r.put(key, value, n)
			err := tx.Delete([]byte(key))
			if value != nil {
				err = tx.Put([]byte(key), value)
			}
			if err != nil {
				return err
			}
		}
		number := []byte(strconv.Itoa(n))
		r.put(string(commitKey), number, n)
		return tx.Put(commitKey, number)
	})
	if err == nil {
		r.acked = n
	}
	return err
}

// clearRange deletes a range of keys.
func (r *besideRun) clearRange(tx *Tx, from, to string, n int) error {
	for key := range r.history {
		if key >= from && key < to {
			r.put(key, nil, n)
		}
	}
	return tx.DeleteRange([]byte(from), []byte(to))
}

// between commits between two steps of background work, so that a flush has redo after its base when it is
// complete.
func (r *besideRun) between(at mvcc.StepPoint) {
	if at != mvcc.StepBetween || r.committing || r.rng.IntN(3) > 0 {
		return
	}
	r.within = true
	defer func() { r.within = false }()
	if err := r.commit(); err != nil {
		require.ErrorIs(r.t, err, errKilled)
	}
}

func (r *besideRun) put(key string, value []byte, commit int) {
	versions := r.history[key]
	if k := len(versions); k > 0 && versions[k-1].commit == commit {
		versions = versions[:k-1]
	}
	r.history[key] = append(versions, besideValue{commit, value})
}

// look is what the reader does in the middle of the writer's calls.
func (r *besideRun) look() {
	r.looks++
	if r.reader == nil {
		db, err := openBeside(besideFS{r.mem, r.fs}, "db", r.opts)
		if r.acked == 0 && (errors.Is(err, fs.ErrNotExist)) {
			return
		}
		require.NoError(r.t, err)
		r.reader = db
	}
	if r.rng.IntN(2) == 0 { // before the reader follows the log
		r.readSlowly()
	}
	if r.rng.IntN(8) == 0 {
		r.readAll(r.acked)
	} else {
		r.readSome(r.acked)
	}
	r.readSlowly()
	if r.opts.Durability == mvcc.Durable && r.rng.IntN(12) == 0 {
		r.cutPower()
	}
}

// cutPower checks that what a reader of a Durable database has shown survives a power failure, even if the writer's
// sync of it has not returned.
func (r *besideRun) cutPower() {
	policies := vfs.Policies()
	img := r.mem.Crash(policies[r.rng.IntN(len(policies))], r.rng.Uint64())
	defer img.Release()
	opts := r.opts
	opts.Step = nil
	db, err := openEngine(img, "db", opts)
	require.NoError(r.t, err)
	at := 0
	switch v, err := db.Get(commitKey); {
	case err == nil:
		at, err = strconv.Atoi(string(v))
		require.NoError(r.t, err)
	default:
		require.ErrorIs(r.t, err, ErrNotFound)
	}
	require.GreaterOrEqual(r.t, at, r.seen, "shown, and lost in a power cut")
	require.NoError(r.t, db.Close())
	r.cuts++
}

// shown checks the commit that a new transaction shows.
func (r *besideRun) shown(tx *Tx, floor int) int {
	at := 0
	switch v, err := tx.Get(commitKey); {
	case err == nil:
		at, err = strconv.Atoi(string(v))
		require.NoError(r.t, err)
	default:
		require.ErrorIs(r.t, err, ErrNotFound)
	}
	require.GreaterOrEqual(r.t, at, floor, "an acknowledged commit is not seen")
	require.GreaterOrEqual(r.t, at, r.seen, "the past has come back")
	require.LessOrEqual(r.t, at, r.issued)
	if at > r.seen {
		r.moved++
	}
	r.seen = at
	return at
}

// readAll compares everything with the model.
func (r *besideRun) readAll(floor int) {
	require.NoError(r.t, r.reader.View(func(tx *Tx) error {
		at := r.shown(tx, floor)
		n := 0
		for k, v := range tx.All() {
			require.True(r.t, bytes.Equal(r.at(string(k), at), v), "commit %d, key %.20q", at, k)
			n++
		}
		want := 0
		for key := range r.history {
			if r.at(key, at) != nil {
				want++
			}
		}
		require.NoError(r.t, tx.Err())
		require.Equal(r.t, want, n, "commit %d", at)
		length, err := tx.Len()
		require.EqualValues(r.t, want, length)
		return err
	}))
}

// readSome compares a few keys.
func (r *besideRun) readSome(floor int) {
	require.NoError(r.t, r.reader.View(func(tx *Tx) error {
		at := r.shown(tx, floor)
		for range 3 {
			require.NoError(r.t, r.compare(tx, at))
		}
		return nil
	}))
	keys := r.keys()
	if len(keys) == 0 {
		return
	}
	key := keys[r.rng.IntN(len(keys))]
	v, err := r.reader.Get([]byte(key))
	if want := r.at(key, r.seen); want == nil {
		require.ErrorIs(r.t, err, ErrNotFound)
	} else {
		require.NoError(r.t, err)
		require.True(r.t, bytes.Equal(want, v))
	}
}

func (r *besideRun) keys() []string {
	keys := make([]string, 0, len(r.history))
	for k := range r.history {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// compare reads one key.
func (r *besideRun) compare(tx *Tx, at int) error {
	keys := r.keys()
	if len(keys) == 0 {
		return nil
	}
	key := keys[r.rng.IntN(len(keys))]
	v, err := tx.Get([]byte(key))
	if errors.Is(err, ErrNotFound) {
		v, err = nil, nil
	}
	if err == nil {
		require.True(r.t, bytes.Equal(r.at(key, at), v), "commit %d, key %.20q", at, key)
		if tx == r.slow {
			r.slowGiven = append(r.slowGiven, [2][]byte{v, bytes.Clone(v)})
		}
	}
	return err
}

// readSlowly continues with a transaction that the writer may overtake.
func (r *besideRun) readSlowly() {
	if r.slow == nil {
		tx, err := r.reader.Begin(TxOptions{ReadOnly: true})
		require.NoError(r.t, err)
		r.slow, r.slowAt = tx, r.shown(tx, r.acked)
		return
	}
	r.slowReads++
	if err := r.compare(r.slow, r.slowAt); err != nil {
		require.ErrorIs(r.t, err, ErrSnapshotTooOld)
		require.ErrorIs(r.t, r.slow.Err(), ErrSnapshotTooOld)
		r.tooOld++
		r.endSlow()
	} else if r.rng.IntN(200) == 0 {
		r.endSlow()
	}
}

func (r *besideRun) endSlow() {
	if r.slow == nil {
		return
	}
	for _, given := range r.slowGiven {
		require.True(r.t, bytes.Equal(given[0], given[1]), "a slice has changed")
	}
	r.slowGiven = r.slowGiven[:0]
	require.NoError(r.t, r.slow.Rollback())
	r.slow = nil
}

// TestBeside: a reader in another process reads the file in the middle of each call of a writer, which commits,
// flushes, checkpoints, reuses segments, is closed, killed and opened again.
func TestBeside(t *testing.T) {
	t.Parallel()
	seeds := *besideSeeds
	if seeds == 0 {
		seeds = 6
		if testing.Short() {
			seeds = 2
		}
	}
	sum := besideRun{}
	for i := range uint64(seeds) {
		seed := *besideFrom + i
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { runBeside(t, seed, &sum) }) {
			t.Fatalf("again with: go test ./dbm -run TestBeside -beside.from=%d -beside.seeds=1", seed)
		}
	}
	t.Logf("%d looks, %d new states seen, %d slow reads, %d slow readers overtaken, %d power cuts, %d looks at a page being written again, %d flushes that left leaves behind, %d holes in segments",
		sum.looks, sum.moved, sum.slowReads, sum.tooOld, sum.cuts, sum.again, sum.parts, sum.thinned)
	if seeds >= 6 {
		require.Positive(t, sum.tooOld)
		require.Positive(t, sum.moved)
		require.Positive(t, sum.again)
		require.Positive(t, sum.parts)
		require.Positive(t, sum.thinned)
	}
}

func runBeside(t *testing.T, seed uint64, sum *besideRun) {
	rng := rand.New(rand.NewPCG(seed, 21))
	mem := vfs.NewMem(64 << 20)
	t.Cleanup(mem.Release)
	besideWithin(t)
	r := &besideRun{t: t, rng: rng, mem: mem, fs: &glimpseFS{FS: mem, rng: rng}, history: map[string][]besideValue{}}
	r.opts = (&Options{
		Durability: []Durability{Durable, WriteThrough}[rng.IntN(2)], MemoryLimit: 2 << 20, RedoLimit: 1 << 20,
	}).engine()
	r.opts.Store.SegmentPages = []uint32{16, 32}[rng.IntN(2)]
	r.opts.Store.ChunkPages = 64
	r.fs.segmentBytes = int64(r.opts.Store.SegmentPages) * 4096
	r.opts.Manual = true
	r.opts.StepPages = 1 + rng.IntN(8)
	r.opts.Step = r.between
	r.opts.Shares.WriteSets = 64 << 20 // so large that no commit between the steps waits for the end of background work
	if seed%3 > 0 {                    // flushes leave leaves behind
		r.opts.PartBytes, r.opts.RedoLimit = 4<<10, 32<<10<<(seed%4)
	}
	if seed%4 < 3 { // ranges are cut
		r.opts.CutFrom = 1
	}
	r.fs.look, r.fs.pauses = r.look, seed%2 == 0
	require.NoError(t, r.openWriter())
	steps := 400
	if testing.Short() {
		steps = 200
	}
	for step := range steps {
		err := r.commit()
		switch k := rng.IntN(120); {
		case err != nil:
		case k < 4:
			err = r.writer.Checkpoint()
		case k < 20:
			before, _ := r.writer.engine.Stats()
			err = r.writer.engine.Housekeep()
			after, _ := r.writer.engine.Stats()
			sum.parts += after.Pages.Parts - before.Pages.Parts
		case k == 20:
			r.endHeld()
			r.committing = true
			if err = r.writer.Close(); err == nil {
				err = r.openWriter()
			}
			r.committing = false
		case k == 21:
			r.fs.kill = r.fs.calls + 1 + rng.IntN(30)
		case k < 26:
			r.hold()
		case k < 40:
			r.readHeld()
		}
		if err != nil {
			require.ErrorIs(t, err, errKilled, "step %d", step)
			r.fs.die()
			r.held = nil
			look := r.fs.look
			r.look() // without a writer
			r.fs.look = nil
			if rng.IntN(2) == 0 {
				r.fs.look = look
			}
			require.NoError(t, r.openWriter())
			r.fs.look = look
			// The commit that was being made when the process died is there now, or never will be.
			var at int
			require.NoError(t, r.writer.View(func(tx *Tx) error {
				v, err := tx.Get(commitKey)
				if err == nil {
					at, err = strconv.Atoi(string(v))
				}
				return err
			}))
			require.GreaterOrEqual(t, at, r.acked)
			require.GreaterOrEqual(t, at, r.seen, "shown and lost")
			if at < r.issued {
				r.forget(at)
			}
			r.acked = at
		}
	}
	r.fs.kill = 0
	r.look()
	r.readAll(r.acked)
	r.endSlow()
	require.NoError(t, r.reader.Check(t.Context()))
	r.fs.look = nil
	require.NoError(t, r.writer.Check(t.Context()))
	r.endHeld()
	r.committing = true
	require.NoError(t, r.writer.Close())
	r.readAll(r.acked)
	require.NoError(t, r.reader.Close())
	sum.thinned += r.fs.thinned
	sum.looks, sum.moved = sum.looks+r.looks, sum.moved+r.moved
	sum.cuts += r.cuts
	sum.again += r.fs.again
	sum.slowReads, sum.tooOld = sum.slowReads+r.slowReads, sum.tooOld+r.tooOld
}

// forget removes from the model what commits after the given one would have written.
func (r *besideRun) forget(after int) {
	for key, versions := range r.history {
		for len(versions) > 0 && versions[len(versions)-1].commit > after {
			versions = versions[:len(versions)-1]
		}
		if len(versions) == 0 {
			delete(r.history, key)
		} else {
			r.history[key] = versions
		}
	}
	r.issued = after
}

// besideWithin fails a test that hangs. Normally, these tests take seconds.
func besideWithin(t *testing.T) {
	hang := time.AfterFunc(2*patience, func() { panic("hangs: " + t.Name()) })
	t.Cleanup(func() { hang.Stop() })
}
