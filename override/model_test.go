package override

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// The model test drives the pages of a small database at random: commits as record groups and page groups, a
// flush whose parts lie between them, folds, moved pages, checkpoints, long readers, and crashes that lose
// unsynced sectors. It compares what readers see and what recovery finds with the history of commits, and the
// space map with the tree. A failure prints its seed:
//
//	go test -run TestModel -model.seed 1234
var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only")
	modelRuns  = flag.Int("model.runs", 150, "number of seeds of the model test")
	modelFirst = flag.Uint64("model.first", 1, "first seed of the model test")
)

const modelSteps = 260

func TestModel(t *testing.T) {
	inTurn(t)
	if *modelSeed != 0 {
		if err := runModel(*modelSeed); err != nil {
			t.Fatalf("seed %d: %v", *modelSeed, err)
		}
		t.Logf("%+v", modelCounts)
		return
	}
	runs := *modelRuns
	if testing.Short() {
		runs = min(runs, 15)
	}
	failed := 0
	for seed := *modelFirst; seed < *modelFirst+uint64(runs); seed++ {
		if err := runModel(seed); err != nil {
			t.Errorf("seed %d: %v", seed, err)
			if failed++; failed == 5 {
				break
			}
		}
	}
	t.Logf("%d seeds: %+v", runs, modelCounts)
}

// modelCounts counts what the runs have exercised.
var modelCounts struct {
	Commits, PageGroups, Leftovers, Runs, Extents, Flushes, Parts, GrownBehind, PartsRedone, FlushesCut, Folds, Retired, Renamed, Touched, Cleaned, Removed, Checkpoints, Reads, Holds,
	Crashes, Traps, Failures, Damaged, Redone, Reused, Thinned, Checked, LongChecks, LongMoved, Height int
}

var errModel = errors.New("model")

func modelErr(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errModel, fmt.Sprintf(format, args...))
}

// modelState is the version of each key, 0 for one that is absent.
type modelState []uint32

// model is a database on a file system in memory, with everything that is known about it.
type model struct {
	reading
	r       *rand.Rand
	mem     *vfs.Mem
	weights []int // of modelActions
	ops     int   // largest number of ops of a commit

	registry   *lockfree.Registry
	view       *atomic.Uint64 // the least watermark that readers register at: durableSeq or appliedSeq
	appliedSeq atomic.Uint64
	durableSeq atomic.Uint64
	count      int64 // records at the newest batch

	mu       sync.Mutex // guards history
	history  map[uint64]modelState
	inGroup  map[uint64]uint64 // number of a record or page group -> Seq of its batch
	pending  []mark            // batches not known to be durable
	sound    int               // checkpoints finished since a superblock was damaged
	flush    *modelFlush
	check    *logstore.Checkpoint
	plan     []logstore.PageID
	parts    bool   // flushes leave leaves behind
	hand     []byte // where the next part begins
	part     *Part  // that was planned last
	readers  []*modelReader
	segments map[int64]bool // segments entered so far

	fails bool // the next sync fails

	checked *Installed    // a check in progress from step to step
	keeps   lockfree.Slot // registers the check's snapshot

	trap  int // file operations until an image is taken; 0 = none
	mode  vfs.Policy
	image *crash // taken by the trap
}

// mark says that groups up to group contain all batches up to seq.
type mark struct{ group, seq uint64 }

// crash is a file system at one moment, with how much of the history, and how many checkpoints, were durable
// then.
type crash struct {
	mem   *vfs.Mem
	group uint64
	sound int
}

// newModel returns a database that is created but not filled.
func newModel(r *rand.Rand, records recordMaker, durable bool) (*model, error) {
	m := &model{reading: reading{records: records}, r: r, mem: vfs.NewMem(16 << 20), ops: 4, segments: map[int64]bool{}}
	m.view = &m.appliedSeq
	if durable {
		m.view = &m.durableSeq
	}
	err := m.open(nil)
	if err != nil {
		m.release()
	}
	return m, err
}

func (m *model) release() {
	m.close()
	m.mem.Release()
}

func runModel(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	m, err := newModel(r, newRecordMaker(r), r.IntN(2) == 0)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	defer m.release()
	m.vary()
	m.mem.SetLoss(vfs.Loss(seed%3), seed)
	m.parts = r.IntN(4) > 0
	if m.records.grows {
		m.parts, m.ops = true, 16
		for i := range modelActions {
			switch modelActions[i].name {
			case "fold", "flush", "touch", "checkpoint step":
				m.weights[i] /= 4
			case "flush step":
				m.weights[i] *= 3
			}
		}
	}
	for step := range modelSteps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return m.settle()
}

// modelActions are the steps that the model takes, with their weights.
var modelActions = [...]struct {
	name   string
	weight int
	do     func(*model) error
}{
	{"commit", 40, (*model).commit},
	{"flush step", 24, (*model).flushStep},
	{"flush", 3, (*model).flushWhole},
	{"sync", 6, (*model).sync},
	{"plan", 2, (*model).planFolds},
	{"fold", 8, (*model).fold},
	{"touch", 3, (*model).touch},
	{"clean", 4, (*model).clean},
	{"checkpoint step", 8, (*model).checkpointStep},
	{"read", 5, (*model).openReader},
	{"reread", 5, (*model).reread},
	{"unread", 4, (*model).closeReader},
	{"reclaim", 10, (*model).reclaim},
	{"check", 2, (*model).checkInstalled},
	{"long check", 4, (*model).longCheck},
	{"crash", 1, (*model).crashNow},
	{"trap", 1, (*model).setTrap},
	{"failure", 1, (*model).failSync},
}

// vary makes each seed another kind of run.
func (m *model) vary() {
	m.ops = []int{2, 4, 16}[m.r.IntN(3)]
	for i := range modelActions {
		m.weights = append(m.weights, modelActions[i].weight*[]int{1, 2, 4}[m.r.IntN(3)])
		if i > 0 && m.r.IntN(12) == 0 {
			m.weights[i] = 0
		}
	}
}

func (m *model) step() error {
	total := 0
	for _, w := range m.weights {
		total += w
	}
	x, i := m.r.IntN(total), 0
	for ; x >= m.weights[i]; i++ {
		x -= m.weights[i]
	}
	err := modelActions[i].do(m)
	if errors.Is(err, logstore.ErrFailed) {
		err = m.afterFailure()
	}
	if err == nil && m.image != nil {
		err = m.recoverFrom(m.image, true)
	}
	if err == nil && m.r.IntN(4) == 0 {
		err = m.verifyNewest()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", modelActions[i].name, err)
	}
	return nil
}

// hook sees every operation of the file system. The first page written in a segment is its header.
func (m *model) hook(op vfs.Op) error {
	segment := int64(modelOptions().SegmentPages) * logstore.PageSize
	if n := op.Off / segment; (op.Kind == vfs.OpWrite || op.Kind == vfs.OpWriteVec) && n > 0 && op.Off == n*segment {
		if m.segments[n] {
			modelCounts.Reused++
		}
		m.segments[n] = true
	}
	if m.fails && op.Kind == vfs.OpDatasync {
		m.fails = false
		return syscall.EIO
	}
	if m.trap > 0 {
		if m.trap--; m.trap == 0 {
			modelCounts.Traps++
			m.image = &crash{m.mem.Crash(m.mode, m.r.Uint64()), m.s.Durable(), m.sound}
		}
	}
	return nil
}

func (m *model) failSync() error {
	m.fails = true
	return nil
}

// afterFailure examines what readers see after a sync has failed and its data is lost: everything durable is
// unchanged, and nothing is shown that was not written. Then it opens the database with what the device has.
func (m *model) afterFailure() error {
	modelCounts.Failures++
	for range 2 {
		if m.view == &m.durableSeq {
			seq := m.durableSeq.Load()
			if err := m.readAll(m.p.At(seq), m.state(seq), nil); err != nil {
				return modelErr("after a failed sync: %v", err)
			}
		}
		for _, r := range m.readers {
			if err := m.recheck(r); err != nil && !(r.snap.Seq() > m.durableSeq.Load() && errors.Is(err, logstore.ErrFailed)) {
				return modelErr("after a failed sync, durable %d: %v", m.durableSeq.Load(), err)
			}
		}
		seq := m.appliedSeq.Load()
		if err := m.readAll(m.p.At(seq), m.state(seq), nil); err != nil && !errors.Is(err, logstore.ErrFailed) {
			return modelErr("after a failed sync: %v", err)
		}
		m.mem.Evict()
	}
	return m.recoverFrom(&crash{m.mem.Crash(vfs.Policy(m.r.IntN(len(vfs.Policies()))), m.r.Uint64()), m.s.Durable(), m.sound}, true)
}

func (m *model) setTrap() error {
	m.trap, m.mode = 1+m.r.IntN(12), vfs.Policy(m.r.IntN(len(vfs.Policies())))
	return nil
}

// state returns the versions as of a Seq.
func (m *model) state(seq uint64) modelState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history[seq]
}

func (m *model) remember(seq uint64, st modelState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history[seq] = st
}

// publish publishes a batch that is in the log, in groups up to group.
func (m *model) publish(seq, group uint64, st modelState) {
	m.remember(seq, st)
	m.appliedSeq.Store(seq)
	m.pending = append(m.pending, mark{group, seq})
	m.publishDurable()
}

func (m *model) publishDurable() {
	n := 0
	for n < len(m.pending) && m.pending[n].group <= m.s.Durable() {
		m.durableSeq.Store(m.pending[n].seq)
		n++
	}
	m.pending = append(m.pending[:0], m.pending[n:]...)
}

func (m *model) sync() error {
	if err := m.s.Sync(); err != nil {
		return err
	}
	m.publishDurable()
	return nil
}

// reserved calls f with that many pages reserved.
func (m *model) reserved(pages int64, f func() error) error {
	if err := m.s.Reserve(pages, true); err != nil {
		return err
	}
	defer m.s.Release(pages)
	return f()
}

func (m *model) reclaim() error {
	m.p.Reclaim(m.view)
	return nil
}

// settle ends everything in progress, and looks for memory that is unreachable and not freed.
func (m *model) settle() error {
	m.fails = false
	if m.checked != nil {
		if err := m.longCheck(); err != nil {
			return err
		}
	}
	for len(m.readers) > 0 {
		if err := m.closeReader(); err != nil {
			return err
		}
	}
	for m.check != nil {
		if err := m.checkpointStep(); err != nil {
			return err
		}
	}
	if err := errors.Join(m.flushWhole(), m.sync(), m.flushWhole()); err != nil {
		return err
	}
	m.p.ReclaimAll(m.view)
	if err := m.verifyNewest(); err != nil {
		return err
	}
	if n := m.p.limbo.size(); n != 0 {
		return modelErr("%d things in limbo with no reader left", n)
	}
	if n := m.p.MemoryBytes(); n != 0 {
		return modelErr("%d bytes of versions held with nothing dirty", n)
	}
	return m.checkInstalled()
}

// checkInstalled compares the installed tree with the space map and with the table.
func (m *model) checkInstalled() error {
	if m.flush != nil {
		return nil
	}
	modelCounts.Checked++
	t := m.p.BeginCheck()
	defer t.End()
	return errors.Join(t.Check(ctx, func(f btree.Fault) error { return f.Err })...)
}

// longCheck begins a check, or ends the one in progress, which checks what was installed when it began,
// whatever happened since.
func (m *model) longCheck() error {
	if t := m.checked; t != nil {
		modelCounts.LongChecks++
		modelCounts.LongMoved += min(len(t.before), 1)
		m.checked = nil
		defer m.keeps.Release()
		defer t.End()
		return errors.Join(t.Check(ctx, func(f btree.Fault) error { return f.Err })...)
	}
	if m.flush != nil || m.check != nil {
		return nil
	}
	m.keeps, m.checked = m.registry.Acquire(&m.appliedSeq), m.p.BeginCheck()
	return m.batch(func(*Batch) error { return nil })
}

// walk calls f for each page of the tree at a snapshot.
func (m *model) walk(s Snapshot, f func(id btree.PageID, n btree.Node) error) error {
	_, err := btree.CheckTree(&s, Root, f)
	return err
}
