package dbm

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

var fullAll = flag.Bool("full.all", false, "fill files of all sizes in TestFull: minutes")

// A fullFile is a database with a limit of a few MiB, and a record of what it holds.
type fullFile struct {
	t    *testing.T
	rng  *rand.Rand
	mem  *vfs.Mem
	opts mvcc.Options
	db   *DB
	size int // length of a value
	per  int // number of puts in a transaction
	keys []int
	next int

	again   int  // how often a delete that finds no room is tried again, because readers that are told to end may be slow
	inOrder bool // keys are put in ascending order,
	random  bool // or at random; otherwise they are spread evenly
	refuses bool // the file system refuses to allocate even space that exists, as XFS does on a full device
}

func newFullFile(t *testing.T, limit int64, segment uint32, size int, d mvcc.Durability) *fullFile {
	f := &fullFile{t: t, rng: rand.New(rand.NewPCG(uint64(limit)+uint64(segment), uint64(size))), mem: vfs.NewMem(0), size: size}
	f.per = max(1, min(20, 8000/size))
	f.opts = (&Options{}).engine()
	f.opts.Manual, f.opts.Durability = true, d
	f.opts.Store.SegmentPages, f.opts.Store.MaxFileSize = segment, limit
	f.opts.Store.ChunkPages = 1 << 10
	f.open()
	t.Cleanup(func() {
		f.close()
		f.mem.Release()
	})
	return f
}

func (f *fullFile) open() {
	db, err := openEngine(f.mem, crashPath, f.opts)
	require.NoError(f.t, err)
	f.db = db
}

func (f *fullFile) close() {
	if f.db != nil {
		require.NoError(f.t, f.db.Close())
	}
	f.db = nil
}

// kill continues with what a killed process has left.
func (f *fullFile) kill() {
	image := f.mem.Crash(vfs.KeepAll, 1)
	f.db.engine.Fail(errors.New("killed"))
	require.Error(f.t, f.db.Close())
	f.mem.Release()
	f.mem = image
	if f.refuses {
		f.refuse()
	}
	f.open()
}

// refuse makes the file system refuse every allocation.
func (f *fullFile) refuse() {
	f.refuses = true
	f.mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpAllocate {
			return syscall.ENOSPC
		}
		return nil
	})
}

func (f *fullFile) key(i int) []byte {
	if f.inOrder {
		return binary.BigEndian.AppendUint64(nil, uint64(i))
	}
	k := uint64(i) * 0x9E3779B97F4A7C15
	if f.random {
		k = (k ^ k>>30) * 0xBF58476D1CE4E5B9
		k = (k ^ k>>27) * 0x94D049BB133111EB
		k ^= k >> 31
	}
	return binary.BigEndian.AppendUint64(nil, k)
}

func (f *fullFile) commit(do func(tx *Tx) error) error {
	tx, err := f.db.Begin(TxOptions{})
	require.NoError(f.t, err)
	if err := do(tx); err != nil {
		require.NoError(f.t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

// housekeep does from time to time what background maintenance would do.
func (f *fullFile) housekeep() {
	if f.rng.IntN(8) == 0 {
		if err := f.db.engine.Housekeep(); !errors.Is(err, ErrFull) {
			require.NoError(f.t, err)
		}
	}
}

// fill puts records until the file is full, and returns how many there are.
func (f *fullFile) fill() int {
	for {
		err := f.commit(func(tx *Tx) error {
			for i := range f.per {
				if err := tx.Put(f.key(f.next+i), make([]byte, f.size)); err != nil {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, ErrFull) {
			return len(f.keys)
		}
		require.NoError(f.t, err)
		for range f.per {
			f.keys = append(f.keys, f.next)
			f.next++
		}
		f.housekeep()
	}
}

// deleteSome deletes the given number of records in random order, each in its own transaction, and calls between
// from time to time.
func (f *fullFile) deleteSome(n int, between func()) {
	for i := range n {
		last := len(f.keys) - 1
		at := f.rng.IntN(last + 1)
		k := f.keys[at]
		f.keys[at] = f.keys[last]
		f.keys = f.keys[:last]
		remove := func() error { return f.commit(func(tx *Tx) error { return tx.Delete(f.key(k)) }) }
		err := remove()
		for again := 0; again < f.again && errors.Is(err, ErrFull); again++ {
			err = remove()
		}
		require.NoError(f.t, err, "delete %d of %d", i, n)
		f.housekeep()
		if between != nil && f.rng.IntN(1+n/10) == 0 {
			between()
		}
	}
}

func (f *fullFile) live() int64 {
	s, err := f.db.engine.Stats()
	require.NoError(f.t, err)
	return s.Space.LiveBytes
}

func (f *fullFile) check() {
	require.NoError(f.t, f.db.Check(f.t.Context()))
	n, err := f.db.Len()
	require.NoError(f.t, err)
	require.EqualValues(f.t, len(f.keys), n)
	require.NoError(f.t, f.db.View(func(tx *Tx) error {
		for range min(100, len(f.keys)) {
			k := f.keys[f.rng.IntN(len(f.keys))]
			v, err := tx.Get(f.key(k))
			require.NoError(f.t, err)
			require.Len(f.t, v, f.size)
		}
		return nil
	}))
}

// On a full file, writes fail with ErrFull, and nothing else fails: all records can be deleted, one key at a time,
// and the space can be written again without reopening the file. This also holds if the process is killed
// meanwhile.
func TestFull(t *testing.T) {
	inTurn(t)
	t.Parallel()
	type shape struct {
		mib     int64
		segment uint32
		size    int
	}
	shapes := []shape{{4, 8, 400}, {4, 256, 100}, {16, 256, 400}, {16, 64, 9000}, {24, 256, 1500}}
	if *fullAll {
		shapes = nil
		for _, mib := range []int64{4, 16, 64} {
			for _, segment := range []uint32{8, 64, 256} {
				for _, size := range []int{20, 400, 1500, 9000} {
					shapes = append(shapes, shape{mib, segment, size})
				}
			}
		}
	}
	for n, s := range shapes {
		if testing.Short() && n > 0 {
			break
		}
		d := mvcc.Durability(n % 3)
		for _, killed := range []bool{false, true} {
			if killed && d == mvcc.Buffered || !killed && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%dMiB-%dpages-%dbytes-%d-%t", s.mib, s.segment, s.size, d, killed), func(t *testing.T) {
				f := newFullFile(t, s.mib<<20, s.segment, s.size, d)
				var between func()
				if killed {
					between = f.kill
				}
				began := time.Now()
				first := f.fill()
				live := f.live()
				filled := time.Since(began)
				f.check()
				f.deleteSome(first/2, between)
				half := f.fill()
				f.check()
				f.deleteSome(half, between)
				f.check()
				all := f.fill()
				f.check()
				t.Logf("full with %d records, %d of %d bytes (%v); half deleted, %d; all deleted, %d (%v)", first, live, s.mib<<20, filled, half, all, time.Since(began))
				most := first * 8 / 10
				if s.mib<<20 < 16*int64(s.segment)*logstore.PageSize { // with few segments, what is left of them makes a difference
					most = first / 2
				}
				require.Greater(t, half, most)
				require.Greater(t, all, most)
				f.close()
				f.open()
				f.check()
			})
		}
	}
}

// TestFullCompact: a full file can be compacted, using the space that is reserved for cleaning.
func TestFullCompact(t *testing.T) {
	inTurn(t)
	t.Parallel()
	segments, size := []uint32{64}, int64(16<<20)
	switch {
	case *fullAll:
		segments = []uint32{64, 8, 256}
	case testing.Short():
		size = 4 << 20
	}
	for _, segment := range segments {
		f := newFullFile(t, size, segment, 400, mvcc.WriteThrough)
		first := f.fill()
		full := f.live()
		require.NoError(t, f.db.Compact(t.Context(), nil), "full of what lives")
		dense := f.live()
		f.check()
		f.fill()
		f.deleteSome(len(f.keys)*6/10, nil)
		holes := f.live()
		require.NoError(t, f.db.Compact(t.Context(), nil))
		f.check()
		live := f.live()
		s := f.db.Stats()
		t.Logf("%d pages a segment: %d records in %d bytes, compacted %d, then 60%% deleted one by one %d, and compacted %d of %d", segment, first, full, dense, holes, live, s.FileBytes)
		require.Less(t, live, holes*7/10)
		f.fill()
		f.check()
		require.Greater(t, len(f.keys), first*8/10)
	}
}

// TestFullDevice does the same on a full device. The database learns that it is full only when its file has to
// grow, and other files take the room and give it back.
func TestFullDevice(t *testing.T) {
	inTurn(t)
	t.Parallel()
	segments, size := []uint32{256, 64, 8}, int64(24<<20)
	if !*fullAll {
		segments, size = []uint32{64, 8}, 8<<20
	}
	if testing.Short() {
		segments, size = []uint32{64}, 4<<20
	}
	for _, segment := range segments {
		t.Run(fmt.Sprint(segment), func(t *testing.T) {
			size := size
			if segment == 8 && !*fullAll {
				size /= 2
			}
			f := newFullFile(t, 0, segment, 400, mvcc.WriteThrough)
			f.mem.SetMaxBytes(size)
			first := f.fill()
			live := f.live()
			f.check()
			f.deleteSome(first/2, nil)
			half := f.fill()
			f.deleteSome(half, nil)
			f.check()
			all := f.fill()
			f.check()
			t.Logf("full with %d records, %d of %d bytes; half deleted, %d; all deleted, %d", first, live, size, half, all)
			require.Greater(t, half, first*8/10)
			require.Greater(t, all, first*8/10)

			f.deleteSome(all*3/4, nil)
			s := f.db.Stats()
			f.mem.SetMaxBytes(s.FileBytes + 64<<10) // other files have taken the rest
			f.fill()
			f.refuse()
			f.kill()
			f.deleteSome(len(f.keys)/2, f.kill)
			f.check()
			few := f.fill()
			f.mem.SetMaxBytes(2 * size) // they have given back more
			f.refuses = false
			f.mem.OnOp(nil)
			more := f.fill()
			f.check()
			t.Logf("%d with %d bytes, %d with %d", few, s.FileBytes+64<<10, more, 2*size)
			require.Greater(t, more, first*3/2)
		})
	}
}

// TestFullReaders: open readers do not prevent deletes on a full file. Those whose snapshots hold the space get
// ErrSnapshotTooOld from their next call.
func TestFullReaders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for seconds until readers are asked to end; runs without -short")
	}
	f := newFullFile(t, 3<<20, 32, 400, mvcc.WriteThrough)
	f.close()
	f.opts.Manual, f.again = false, 5
	f.open()
	first := f.fill()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var reads, old atomic.Int64
	for g := range 2 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for ctx.Err() == nil {
				err := f.db.View(func(tx *Tx) error {
					for ctx.Err() == nil { // until its snapshot holds space that deletes need
						if _, err := tx.Get(f.key(rng.IntN(first))); err != nil && !errors.Is(err, ErrNotFound) {
							return err
						}
						reads.Add(1)
						time.Sleep(time.Millisecond)
					}
					return nil
				})
				if errors.Is(err, ErrSnapshotTooOld) {
					old.Add(1)
				} else if err != nil {
					t.Errorf("reader: %v", err)
				}
			}
		})
	}
	f.deleteSome(first, nil)
	stop()
	all.Wait()
	again := f.fill()
	f.check()
	t.Logf("%d and %d records; %d reads, %d readers were in the way", first, again, reads.Load(), old.Load())
	require.Greater(t, again, first/2)
	require.NotZero(t, old.Load())
}

// TestFullOfLongKeys: the smallest file that users can set, full of the longest keys that fit in its segments and
// of short ones, can be emptied, even if the process is killed several times.
func TestFullOfLongKeys(t *testing.T) {
	inTurn(t)
	t.Parallel()
	for d := range mvcc.Durability(3) {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			f := newFullFile(t, MinMaxFileSize, 0, 100, d)
			key := func(i int) []byte {
				if i%3 == 0 {
					return append(make([]byte, 3*logstore.PageSize-8), f.key(i)...)
				}
				return f.key(i)
			}
			for range 3 { // right after the creation
				f.kill()
			}
			for range 3 {
				put := 0
				for err := error(nil); err == nil; put++ {
					err = f.commit(func(tx *Tx) error { return tx.Put(key(put), make([]byte, f.size)) })
					if err != nil {
						require.ErrorIs(t, err, ErrFull)
					} else if d != mvcc.Buffered && f.rng.IntN(4) == 0 {
						f.kill()
					}
				}
				require.Greater(t, put, 10)
				for i := range put {
					require.NoError(t, f.commit(func(tx *Tx) error { return tx.Delete(key(i)) }), "delete %d of %d", i, put)
					if d != mvcc.Buffered && f.rng.IntN(4) == 0 {
						f.kill()
					}
				}
				f.check()
			}
		})
	}
}
