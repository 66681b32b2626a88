package logstore

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"

	"flashdbm/logstore/vfs"
)

// The model test drives the toy at random over a file system that loses unsynced writes, and compares each recovery
// with the history. A failure prints its seed:
//
//	go test -run TestModel -model.seed 1234
var (
	modelSeed  = flag.Uint64("model.seed", 0, "run the model test with this seed only")
	modelRuns  = flag.Int("model.runs", 60, "number of seeds of the model test")
	modelFirst = flag.Uint64("model.first", 1, "first seed of the model test")
)

const modelSteps = 220

func TestModel(t *testing.T) {
	inTurn(t)
	if *modelSeed != 0 {
		if err := runModel(*modelSeed, modelSteps); err != nil {
			t.Fatalf("seed %d: %v", *modelSeed, err)
		}
		return
	}
	runs := *modelRuns
	if testing.Short() {
		runs = min(runs, 8)
	}
	var failed int
	for seed := *modelFirst; seed < *modelFirst+uint64(runs); seed++ {
		if err := runModel(seed, modelSteps); err != nil {
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
	Commits, Extended, Syncs, Flushes, Checkpoints, Crashes, Nested, Kills, Damaged, FailedSyncs, Reopens, Full, Reuses, MostSegments, Cuts, Punches, Thinned, Invalidated int
}

func modelOptions() Options {
	return Options{Synced: true, Growing: true, SegmentPages: 8, ChunkPages: 1024, MaxFileSize: 44 * 8 * PageSize}
}

// An image is a file system at one moment, with what is known about it.
type image struct {
	mem *vfs.Mem
	log *lineage
}

type model struct {
	r        *rand.Rand
	opts     Options
	weights  [10]int // of the steps, in the order of step
	crashes  int     // average number of steps between images
	mem      *vfs.Mem
	log      *lineage
	d        *toy
	trap     int    // operations until an image is taken; 0: none
	caught   *image // the image taken
	failSync bool
	guarded  error // a forbidden write
}

func runModel(seed uint64, steps int) (err error) {
	m := &model{r: rand.New(rand.NewPCG(seed, 1)), mem: vfs.NewMem(4 << 20), log: newLineage(), opts: modelOptions()}
	m.vary()
	m.mem.SetLoss(vfs.Loss(seed%3), seed)
	defer func() {
		if m.d != nil {
			m.d.s.Close()
		}
		m.mem.Release()
	}()
	if m.d, err = m.open(); err != nil {
		return err
	}
	for step := range steps {
		if m.r.IntN(m.crashes) == 0 {
			m.trap = 1 + m.r.IntN(6)
		}
		m.failSync = m.r.IntN(10*m.crashes) == 0
		err := m.step()
		switch {
		case m.guarded != nil:
			err = m.guarded
		case m.caught != nil:
			err = m.crash(m.caught)
		case errors.Is(err, ErrFailed):
			modelCounts.FailedSyncs++
			if err = nil; m.d != nil { // else it was being opened
				err = m.d.verifyFailed()
			}
			if err == nil {
				err = m.crash(&image{m.mem.Clone(), m.log.cut()})
			}
		case errors.Is(err, ErrFull):
			modelCounts.Full++
			if err = m.d.makeRoom(); errors.Is(err, ErrFull) || errors.Is(err, errToyBusy) {
				err = nil
			} else if errors.Is(err, ErrFailed) {
				err = m.crash(&image{m.mem.Clone(), m.log.cut()})
			}
		}
		if err == nil {
			err = m.check()
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	if m.guarded != nil {
		return m.guarded
	}
	modelCounts.MostSegments = max(modelCounts.MostSegments, m.d.s.SpaceStats().Segments)
	return m.d.verify()
}

// hook sees every operation of the file system.
func (m *model) hook(op vfs.Op) error {
	if m.trap > 0 {
		if m.trap--; m.trap == 0 {
			m.caught = &image{m.mem.Clone(), m.log.clone()}
		}
	}
	if m.failSync && op.Kind == vfs.OpDatasync {
		m.failSync = false
		return syscall.EIO
	}
	return nil
}

// open opens the toy under guard. Recovery must change no byte of the file, except in pages of interrupted
// groups.
func (m *model) open() (*toy, error) {
	m.mem.OnOp(m.hook)
	var d *toy
	mem, log := m.mem, m.log
	type last struct{ predecessor, group uint64 } // predecessor that a header names; group that wrote the page last
	invalid := map[Addr]last{}
	fs := &guardFS{FS: mem, change: func(a Addr, before, after []byte) error {
		switch {
		case d != nil:
			if n := d.s.segmentOf(a); a == d.s.firstPage(n)+headerPage(n) && !isZero(before) {
				modelCounts.Reuses++
			}
			m.guarded = cmp.Or(m.guarded, d.mayChange(a, before, after))
		case log.created && a < 2 && changesLineage(before, after):
		case log.created && a >= 2 && bytes.Equal(after, invalidated(before, a == a/8*8+headerPage(uint32(a/8)), predecessorOf(after))):
			invalid[a] = last{predecessorOf(after), log.owner[a]}
		case log.created && !completesHeader(before, after):
			m.guarded = cmp.Or(m.guarded, fmt.Errorf("%w: recovery changed page %d", errToy, a))
		}
		return m.guarded
	}, wrote: log.wrote, syncing: func() { clear(log.fresh) }, reserved: func(off, n int64) bool { return mem.Reserved(toyPath, off, n) }}
	opened, err := openToy(fs, m.opts, m.r, log)
	if d = opened; err != nil {
		return d, err
	}
	for a, l := range invalid {
		modelCounts.Invalidated++
		m.guarded = cmp.Or(m.guarded, d.mayInvalidate(a, l.predecessor, l.group))
	}
	return d, m.guarded
}

// vary makes each seed another kind of run: with or without syncs, with little room or much, with frequent or
// rare crashes.
func (m *model) vary() {
	m.weights = [...]int{42, 12, 6, 10, 4, 8, 4, 2, 6, 6 * m.r.IntN(3)}
	m.crashes = []int{6, 10, 25}[m.r.IntN(3)]
	m.opts.MaxFileSize = int64(18+m.r.IntN(24)) * 8 * PageSize
	m.log.small = m.r.IntN(2) == 0
	for i := range m.weights {
		m.weights[i] *= []int{1, 2, 4}[m.r.IntN(3)]
	}
	m.weights[1] *= m.r.IntN(3) // syncs
	m.weights[5] *= m.r.IntN(4) // checkpoints
}

func (m *model) step() error {
	d := m.d
	total := 0
	for _, w := range m.weights {
		total += w
	}
	x, kind := m.r.IntN(total), 0
	for ; x >= m.weights[kind]; kind++ {
		x -= m.weights[kind]
	}
	switch kind {
	case 0:
		modelCounts.Commits++
		return d.commit()
	case 1:
		modelCounts.Syncs++
		return d.sync()
	case 2:
		return busy(d.startFlush())
	case 3:
		modelCounts.Flushes++
		return busy(d.flushStep())
	case 4:
		return busy(d.startCheckpoint())
	case 5:
		modelCounts.Checkpoints++
		return busy(d.checkpointStep())
	case 6:
		d.clean()
		if m.r.IntN(8) == 0 {
			return d.s.ZeroAhead()
		}
		return nil
	case 7:
		return m.reopen()
	case 9:
		return m.trim()
	}
	if len(d.readers) > 0 && m.r.IntN(8) == 0 {
		i := m.r.IntN(len(d.readers))
		d.readers = slices.Delete(d.readers, i, i+1)
		return nil
	}
	return d.takeReader()
}

// trim gives free space back except for some of it. At times it makes checkpoints so that the space is given
// back at once.
func (m *model) trim() error {
	d, s := m.d, m.d.s
	if d.check != nil {
		return nil
	}
	if n := int64(20 + m.r.IntN(60)); m.r.IntN(3) == 0 && s.Reserve(n, false) == nil { // more than is needed
		s.Release(n)
	}
	if m.r.IntN(2) == 0 {
		s.Condemn(int64(m.r.IntN(20)), 1+m.r.IntN(3))
	}
	s.Thin()
	for n := m.r.IntN(4); n > 0 && d.flush == nil; n-- {
		if err := d.checkpoint(); err != nil {
			return busy(err)
		}
	}
	before, end, holes := s.SpaceStats(), s.End(), s.space.Counts().Holes
	for more := true; more; {
		var err error
		if more, err = s.GiveBack(); err != nil {
			return err
		}
	}
	if s.space.Counts().Holes > holes {
		modelCounts.Thinned++
	}
	if s.End() < end {
		modelCounts.Cuts++
	} else if s.SpaceStats().FileBytes < before.FileBytes {
		modelCounts.Punches++
	}
	return nil
}

// reopen closes the toy and opens it again.
func (m *model) reopen() (err error) {
	modelCounts.Reopens++
	m.d.s.Close()
	m.log.issued = m.d.seq
	m.d = nil
	m.d, err = m.open()
	if m.caught != nil {
		return nil
	}
	return err
}

func busy(err error) error {
	if errors.Is(err, errToyBusy) {
		return nil
	}
	return err
}

// crash continues with what a power cut, or a kill, makes of an image.
func (m *model) crash(img *image) error {
	for depth := 0; ; depth++ {
		modelCounts.Crashes++
		if m.d != nil {
			m.d.s.Close()
			m.d = nil
		}
		m.mem.Release()
		m.mem, m.log, m.caught, m.trap, m.failSync = img.mem, img.log, nil, 0, false
		kill := m.r.IntN(3) == 0
		if kill {
			modelCounts.Kills++
		} else {
			m.log.written = m.log.acked
			policies := vfs.Policies()
			m.mem = img.mem.Crash(policies[m.r.IntN(len(policies))], m.r.Uint64())
			img.mem.Release()
			if m.r.IntN(5) == 0 {
				m.damage()
			}
		}
		if depth < 3 && m.r.IntN(3) == 0 {
			m.trap = 1 + m.r.IntN(8)
		}
		d, err := m.open()
		m.trap = 0
		if m.caught == nil {
			if err = cmp.Or(m.guarded, err); err != nil {
				return err
			}
			m.d = d
			if m.r.IntN(3) == 0 { // the next crash comes soon
				m.trap = 1 + m.r.IntN(4)
			}
			return m.again()
		}
		modelCounts.Nested++
		if d != nil {
			d.s.Close()
		}
		img = m.caught
	}
}

// again recovers another copy, which must give the same result.
func (m *model) again() error {
	if m.r.IntN(4) != 0 {
		return nil
	}
	mem := m.mem.Clone()
	defer mem.Release()
	d, err := openToy(mem, m.opts, m.r, m.log.clone())
	if err != nil {
		return fmt.Errorf("recovered twice: %w", err)
	}
	defer d.s.Close()
	if d.seq != m.d.seq || d.s.LastGroup() != m.d.s.LastGroup() {
		return fmt.Errorf("%w: recovered twice: commit %d, group %d after commit %d, group %d", errToy,
			d.seq, d.s.LastGroup(), m.d.seq, m.d.s.LastGroup())
	}
	return nil
}

// damage flips a bit of the newer superblock if both are whole.
func (m *model) damage() {
	f, err := m.mem.Open(toyPath, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	var sb [2]superblock
	for slot := range sb {
		p := make([]byte, superblockSize)
		f.ReadAt(p, int64(slot)*PageSize)
		if sb[slot], err = getSuperblock(p); err != nil {
			return
		}
	}
	slot := 0
	if sb[1].number > sb[0].number {
		slot = 1
	}
	p := make([]byte, 1)
	at := int64(slot)*PageSize + int64(m.r.IntN(superblockSize))
	f.ReadAt(p, at)
	p[0] ^= 1 << m.r.IntN(8)
	f.WriteAt(p, at)
	f.Datasync()
	modelCounts.Damaged++
}

// check looks at what the present store shows.
func (m *model) check() error {
	d := m.d
	snapshots := []uint64{d.clock}
	for _, r := range d.readers {
		snapshots = append(snapshots, r.clock)
		for _, seen := range r.seen {
			slot, v, err := d.getPage(seen.page)
			if err == nil && (slot != seen.slot || v.version != seen.version) {
				err = fmt.Errorf("%w: a reader's page %d changed", errToy, seen.page)
			}
			if err == nil && seen.run != 0 {
				err = d.checkRun(seen.run, seen.slot, seen.version)
			}
			if err != nil {
				return fmt.Errorf("reader at %d: %w", r.clock, err)
			}
		}
	}
	slices.Sort(snapshots)
	d.s.SetSnapshots(slices.Compact(snapshots))
	d.s.space.Collect() // what may be reused is reused soon
	if m.r.IntN(10) == 0 {
		return d.verify()
	}
	return nil
}

// takeReader registers a snapshot of the installed state.
func (d *toy) takeReader() error {
	if len(d.readers) == 4 {
		return nil
	}
	r := toyReader{clock: d.clock}
	for slot := range toySlots {
		a := d.at(d.names[slot])
		_, v, err := d.getPage(a)
		if err != nil {
			return err
		}
		seen := toySeen{slot: slot, version: v.version, page: a}
		if v.run != 0 {
			seen.run = d.at(v.run)
		}
		r.seen = append(r.seen, seen)
	}
	d.readers = append(d.readers, r)
	return nil
}
