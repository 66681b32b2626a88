package logstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// A file whose creation was interrupted at any point opens as a new file or as a complete one.
func TestCreationCutShort(t *testing.T) {
	inTurn(t)
	for op := 0; ; op++ {
		mem, log := vfs.NewMem(4<<20), newLineage()
		var img *image
		mem.OnOp(func(o vfs.Op) error {
			if o.Index == op {
				img = &image{mem.Clone(), log.clone()}
			}
			return nil
		})
		d, err := openToy(mem, modelOptions(), rand.New(rand.NewPCG(1, 1)), log)
		require.NoError(t, err)
		d.s.Close()
		mem.Release()
		if img == nil {
			require.Greater(t, op, 8)
			return
		}
		for seed := range uint64(8) {
			for _, p := range vfs.Policies() {
				cut := img.mem.Crash(p, seed)
				d, err := openToy(cut, modelOptions(), rand.New(rand.NewPCG(1, 1)), img.log.cut())
				require.NoError(t, err, "operation %d, %v, seed %d", op, p, seed)
				require.NoError(t, d.commit())
				require.NoError(t, d.verify())
				d.s.Close()
				cut.Release()
			}
		}
		img.mem.Release()
	}
}

// A file of an interrupted creation is created again. An open after a kill may have made the file a page longer before
// a power cut lost its superblock, also in the next creation. A file that is longer still was not made by a creation
// and is refused.
func TestCreationCutShortAgain(t *testing.T) {
	for pages, ours := range map[int64]bool{initialPages: true, initialPages + 1: true, initialPages + MinSegmentPages: false, 2 * initialPages: false} {
		mem := vfs.NewMem(4 << 20)
		t.Cleanup(mem.Release)
		f, err := mem.Open(toyPath, os.O_RDWR|os.O_CREATE, 0o600)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(pages*PageSize))
		require.NoError(t, f.Close())
		opts := modelOptions()
		opts.SegmentPages, opts.MaxFileSize = DefaultSegmentPages, 0
		s, rec, err := Open(mem, toyPath, opts)
		if !ours {
			require.ErrorIs(t, err, ErrFormat, "%d pages", pages)
			continue
		}
		require.NoError(t, err, "%d pages", pages)
		require.True(t, rec.Created)
		require.NoError(t, s.Close())
	}
}

// workload uses every part of the store, in the same way each time.
func workload(fs vfs.FS, log *lineage) (d *toy, err error) {
	d, err = openToy(fs, modelOptions(), rand.New(rand.NewPCG(5, 5)), log)
	if err != nil {
		return nil, err
	}
	for round := range 6 {
		for range 4 {
			if err := d.commit(); err != nil {
				return d, err
			}
		}
		if err := d.sync(); err != nil {
			return d, err
		}
		if round%2 == 1 {
			d.s.SetSnapshots([]uint64{d.clock})
			d.clean()
			if err := errors.Join(d.flushAll(), d.checkpoint()); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// Any one call fails, once. The error is reported, what was durable can still be read, and the next open finds
// everything acknowledged, also after a power cut.
func TestEveryFailure(t *testing.T) {
	inTurn(t)
	for _, fault := range []struct {
		name string
		err  error
		full bool
		loss vfs.Loss
	}{
		{"EIO", syscall.EIO, false, vfs.LoseAll},
		{"EIO, pages dropped by chance", syscall.EIO, false, vfs.LoseSome},
		{"EIO, pages dropped later", syscall.EIO, false, vfs.LoseLater},
		{"ENOSPC", syscall.ENOSPC, true, vfs.LoseAll},
		{"short write", &vfs.ShortWrite{N: PageSize, Err: syscall.ENOSPC}, true, vfs.LoseAll},
	} {
		t.Run(fault.name, func(t *testing.T) {
			step := 1
			if testing.Short() {
				step = 5
			}
			for op := 0; ; op += step {
				mem, log := vfs.NewMem(4<<20), newLineage()
				mem.SetLoss(fault.loss, uint64(op))
				var failed vfs.Op
				mem.OnOp(func(o vfs.Op) error {
					if o.Index == op {
						failed = o
						return fault.err
					}
					return nil
				})
				d, err := workload(mem, log)
				mem.OnOp(nil)
				if failed.Kind == 0 {
					require.NoError(t, err)
					d.s.Close()
					mem.Release()
					return
				}
				checkFailure(t, mem, log, d, failed, err, fault.full)
				mem.Release()
			}
		})
	}
}

func checkFailure(t *testing.T, mem *vfs.Mem, log *lineage, d *toy, op vfs.Op, err error, full bool) {
	if op.Kind == vfs.OpAllocate && full && err == nil {
		d.s.Close() // a smaller allocation was enough
		return
	}
	if (op.Kind == vfs.OpStore || op.Kind == vfs.OpWindow) && err == nil { // the page was written with WriteAt instead
		require.NoError(t, d.s.Failed())
		d.s.Close()
		return
	}
	require.Error(t, err, "%v", op)
	if d != nil {
		grows := op.Kind == vfs.OpAllocate && full
		require.Equal(t, grows, errors.Is(err, ErrFull), "%v: %v", op, err)
		require.Equal(t, !grows, errors.Is(err, ErrFailed), "%v: %v", op, err)
		if grows {
			require.NoError(t, d.s.Failed(), "%v", op)
			require.NoError(t, d.commit(), "%v", op)
		} else {
			require.ErrorIs(t, d.s.Sync(), ErrFailed, "%v: nothing is retried", op)
			require.ErrorIs(t, d.s.SyncPrivate(), ErrFailed)
			_, err := d.s.Begin(RecordGroup).Commit(0)
			require.ErrorIs(t, err, ErrFailed)
		}
		require.NoError(t, d.verifyFailed(), "%v: reading goes on", op)
		if mem.Evict(); op.Kind != vfs.OpAllocate || !full {
			require.NoError(t, d.verifyFailed(), "%v: when what was not synced is gone", op)
		}
		d.s.Close()
	}
	for _, p := range []vfs.Policy{vfs.KeepNone, vfs.KeepAll, vfs.KeepRandomSectors} {
		cut := mem.Crash(p, 1)
		d, err := openToy(cut, modelOptions(), rand.New(rand.NewPCG(1, 1)), log.cut())
		require.NoError(t, err, "%v, then %v", op, p)
		d.s.Close()
		cut.Release()
	}
	if log = log.clone(); op.Kind == vfs.OpDatasync || op.Kind == vfs.OpWriteOut {
		log = log.cut() // the system had it only in its cache and has lost it
	}
	d, err = openToy(mem, modelOptions(), rand.New(rand.NewPCG(1, 1)), log) // after a kill
	require.NoError(t, err, "%v, then a kill", op)
	d.s.Close()
	cut := mem.Crash(vfs.KeepNone, 1)
	d, err = openToy(cut, modelOptions(), rand.New(rand.NewPCG(1, 1)), log)
	require.NoError(t, err, "%v, then a kill, then a power cut", op)
	d.s.Close()
	cut.Release()
}

// A full file accepts deletes and cleaning, and then commits again; also after a crash while it is full.
func TestFullFile(t *testing.T) {
	mem, log := vfs.NewMem(4<<20), newLineage()
	defer func() { mem.Release() }()
	opts := modelOptions()
	opts.MaxFileSize = 0
	mem.SetMaxBytes(36 * 8 * PageSize)
	r := rand.New(rand.NewPCG(9, 9))
	d, err := openToy(mem, opts, r, log)
	require.NoError(t, err)
	var fulls int
	for range 600 {
		err := d.commit()
		if err == nil {
			continue
		}
		require.ErrorIs(t, err, ErrFull)
		require.NoError(t, d.s.Failed())
		fulls++
		if fulls%3 == 0 {
			require.NoError(t, d.sync())
			d.s.Close()
			cut := mem.Crash(vfs.KeepRandomSectors, uint64(fulls))
			mem.Release()
			mem = cut
			log = log.cut()
			d, err = openToy(mem, opts, r, log)
			require.NoError(t, err)
		}
		require.NoError(t, d.makeRoom())
		require.NoError(t, d.commit(), "after making room")
	}
	require.Greater(t, fulls, 5)
	require.NoError(t, d.verify())
	d.s.Close()
}

func TestLocking(t *testing.T) {
	x := newScript(t)
	_, _, err := Open(x.mem, toyPath, x.opts)
	require.ErrorIs(t, err, vfs.ErrLocked)
	readOnly := x.opts
	readOnly.ReadOnly = true
	_, _, err = Open(x.mem, toyPath, readOnly)
	require.ErrorIs(t, err, vfs.ErrLocked)

	s := x.s
	time.AfterFunc(20*time.Millisecond, func() { s.Close() })
	x.opts.LockTimeout = time.Minute
	x.open()
	x.s.Close()

	x.opts = readOnly
	x.open()
	second, rec, err := Open(x.mem, toyPath, readOnly)
	require.NoError(t, err, "readers share")
	require.NoError(t, second.EndRecovery(rec))
	defer second.Close()
	_, _, err = Open(x.mem, toyPath, Options{SegmentPages: 8, ChunkPages: 4096})
	require.ErrorIs(t, err, vfs.ErrLocked)
}

func TestReadOnly(t *testing.T) {
	readOnly := Options{SegmentPages: 8, ChunkPages: 4096, ReadOnly: true}
	x := newScript(t)
	x.append(2)
	x.crash(vfs.KeepAll)
	x.mem.OnOp(func(op vfs.Op) error {
		if op.Kind != vfs.OpMap && op.Kind != vfs.OpDatasync {
			return fmt.Errorf("a read-only store did %v", op)
		}
		return nil
	})
	x.opts = readOnly
	x.open()
	require.Equal(t, []uint64{3}, x.groups())
	require.ErrorIs(t, x.s.Reserve(1, true), ErrReadOnly)
	_, err := x.s.Begin(PageGroup).Commit(1)
	require.ErrorIs(t, err, ErrReadOnly)
	require.NoError(t, x.s.Failed())

	_, _, err = Open(x.mem, "absent", readOnly)
	require.Error(t, err)
	empty := vfs.NewMem(1 << 20)
	defer empty.Release()
	f, err := empty.Open(toyPath, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	f.Close()
	s, rec, err := Open(empty, toyPath, readOnly)
	require.NoError(t, err)
	require.True(t, rec.Created)
	require.NoError(t, s.EndRecovery(rec))
	require.NoError(t, s.Close())
}

func TestOptions(t *testing.T) {
	mem := vfs.NewMem(1 << 20)
	defer mem.Release()
	for _, opts := range []Options{
		{SegmentPages: 4, ChunkPages: 64}, {SegmentPages: 12, ChunkPages: 64}, {SegmentPages: MaxSegmentPages * 2, ChunkPages: 64}, {ChunkPages: 100},
	} {
		_, _, err := Open(mem, toyPath, opts)
		require.Error(t, err, "%+v", opts)
	}
	f, err := mem.Open("text", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	f.WriteAt([]byte("a text of somebody else's"), 0)
	f.Close()
	_, _, err = Open(mem, "text", modelOptions())
	require.ErrorIs(t, err, ErrFormat)
}

// Syncs, growth and reads run concurrently with the appender, but never two syncs at once.
func TestConcurrency(t *testing.T) {
	x := newScript(t)
	x.s.Close()
	fs := &oneSync{FS: x.mem}
	s, rec, err := Open(fs, toyPath, x.opts)
	require.NoError(t, err)
	require.NoError(t, s.EndRecovery(rec))
	x.s = s
	var pages sync.Map // Addr -> first byte
	stop := make(chan struct{})
	var wg sync.WaitGroup
	run := func(fn func() error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := fn(); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	for range 2 {
		run(func() error {
			last := s.LastGroup()
			err := s.Sync()
			if err == nil && s.Durable() < last {
				err = errors.New("synced and not durable")
			}
			return err
		})
	}
	run(func() error {
		var err error
		pages.Range(func(a, want any) bool {
			p, e := s.Page(a.(Addr))
			if err = e; err == nil && p[MuxSize] != want.(byte) {
				err = fmt.Errorf("page %d changed", a)
			}
			return err == nil
		})
		s.SpaceStats()
		s.Counters()
		return err
	})
	run(func() error {
		err := s.Reserve(5, false)
		if err == nil {
			s.Release(5)
		}
		return err
	})
	run(func() error {
		p := s.NewPrivate()
		defer p.Discard()
		_, err := p.Write(make([]byte, 3*PageSize+5))
		if err == nil {
			_, err = p.Finish()
		}
		return err
	})
	for range 150 {
		require.NoError(t, s.Reserve(3, true))
		g := s.Begin(PageGroup)
		var added []Addr
		for range 3 {
			a, body := g.Page(BornBit | 1)
			body[0] = byte(a)
			added = append(added, a)
		}
		_, err := g.Commit(3)
		require.NoError(t, err)
		s.Release(3)
		for _, a := range added {
			pages.Store(a, byte(a))
		}
	}
	close(stop)
	wg.Wait()
	require.False(t, fs.overlap.Load())
}
