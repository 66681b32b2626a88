package dbm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// TestBesideOvertaken: a transaction is held while the writer reuses the whole file several times. It reads what
// was there when it began, or gets ErrSnapshotTooOld, and what it has returned stays. A new transaction sees the
// newest state.
func TestBesideOvertaken(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	opts := (&Options{Durability: WriteThrough, MemoryLimit: 2 << 20, RedoLimit: 1 << 20}).engine()
	opts.Store.SegmentPages, opts.Store.ChunkPages = 16, 64
	opts.Manual = true // even an idle writer reuses space
	writer, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	const records = 300
	key := func(i int) []byte { return fmt.Appendf(nil, "key %04d", i) }
	value := func(i, round int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "%d.%d,", i, round), []int{10, 30, 600}[i%3])
	}
	write := func(round int) {
		for i := 0; i < records; i += 10 {
			require.NoError(t, writer.Update(func(tx *Tx) error {
				for j := i; j < i+10; j++ {
					if err := tx.Put(key(j), value(j, round)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	write(0)
	require.NoError(t, writer.Checkpoint()) // a reader keeps in memory what is not in pages yet
	reader, err := openBeside(mem, "db", opts)
	require.NoError(t, err)
	held, err := reader.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var others []*DB
	var fresh []*Tx // transactions that have returned nothing when they are overtaken
	for i := range 12 {
		other, err := openBeside(mem, "db", opts) // without copies of pages
		require.NoError(t, err)
		tx, err := other.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err, "%d", i)
		others, fresh = append(others, other), append(fresh, tx)
	}
	var given [][]byte
	for i := range records / 2 {
		v, err := held.Get(key(i))
		require.NoError(t, err)
		given = append(given, v)
	}
	size := writer.Stats().FileBytes
	round := 1
	for before := writer.Stats().PagesWritten; int64(writer.Stats().PagesWritten-before)*4096 < 4*size; round++ {
		write(round)
		require.NoError(t, writer.Checkpoint())
	}
	require.Less(t, writer.Stats().FileBytes, 3*size, "the file is used again")
	tooOld := 0
	for i := range records {
		v, err := held.Get(key(i))
		if err != nil {
			require.ErrorIs(t, err, ErrSnapshotTooOld)
			tooOld++
		} else {
			require.True(t, bytes.Equal(value(i, 0), v))
		}
	}
	require.Positive(t, tooOld)
	for i, v := range given {
		require.True(t, bytes.Equal(value(i, 0), v))
	}
	require.ErrorIs(t, held.Commit(), ErrSnapshotTooOld)
	// Another transaction that has returned nothing shows the newest state completely, or its own state as far as
	// that still exists.
	renewed := 0
	for i, tx := range fresh {
		shown, n := -1, 0
		c := tx.Cursor()
		for ; c.Next(); n++ {
			if shown < 0 {
				shown = 0
				if !bytes.Equal(value(0, 0), c.Value()) {
					shown = round - 1
				}
			}
			require.Equal(t, key(n), c.Key())
			v := c.Value()
			if c.Err() != nil {
				break
			}
			require.True(t, bytes.Equal(value(n, shown), v), "record %d, round %d", n, shown)
		}
		if c.Err() != nil {
			require.ErrorIs(t, c.Err(), ErrSnapshotTooOld)
			require.Zero(t, shown)
		} else {
			require.Equal(t, records, n)
		}
		if shown > 0 {
			renewed++
		}
		require.NoError(t, tx.Rollback())
		require.NoError(t, others[i].Close())
		if renewed == 0 { // the first page that it needs may be where nothing has been written since
			write(round)
			require.NoError(t, writer.Checkpoint())
			round++
		}
	}
	require.Positive(t, renewed)
	require.NoError(t, reader.View(func(tx *Tx) error {
		for i := range records {
			v, err := tx.Get(key(i))
			require.NoError(t, err)
			require.True(t, bytes.Equal(value(i, round-1), v))
		}
		return nil
	}))
	require.NoError(t, reader.Close())
	require.NoError(t, writer.Close())
}

// TestBesideCutAndDamaged: if a file is truncated or damaged while a reader uses it, the reader gets an error.
// There is never a fault, a wrong value or a hang.
func TestBesideCutAndDamaged(t *testing.T) {
	besideWithin(t)
	build := func(t *testing.T) (*vfs.Mem, mvcc.Options) {
		mem := vfs.NewMem(64 << 20)
		t.Cleanup(mem.Release)
		opts := (&Options{Durability: WriteThrough, MemoryLimit: 2 << 20}).engine()
		opts.Store.SegmentPages, opts.Store.ChunkPages = 16, 64
		writer, err := openEngine(mem, "db", opts)
		require.NoError(t, err)
		for i := range 100 {
			require.NoError(t, writer.Put(fmt.Appendf(nil, "%03d", i), sized(40*i, byte(i))))
		}
		require.NoError(t, writer.Close())
		return mem, opts
	}
	readAll := func(t *testing.T, get func(key []byte) ([]byte, error)) (failed int) {
		for i := range 100 {
			v, err := get(fmt.Appendf(nil, "%03d", i))
			if err != nil {
				require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrSnapshotTooOld) || errors.Is(err, ErrFormat), "%v", err)
				failed++
			} else {
				require.True(t, bytes.Equal(sized(40*i, byte(i)), v))
			}
		}
		return failed
	}
	mem, opts := build(t)
	f, err := mem.Open("db", os.O_RDWR, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	require.NoError(t, f.Close())
	rng := rand.New(rand.NewPCG(1, 22))
	for try := range 60 {
		mem := mem.Clone()
		f, err := mem.Open("db", os.O_RDWR, 0)
		require.NoError(t, err)
		reader, err := openBeside(mem, "db", opts)
		require.NoError(t, err)
		tx, err := reader.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err)
		if try%2 == 0 {
			require.NoError(t, f.Truncate(rng.Int64N(size/512)*512))
		} else {
			noise := make([]byte, 4096*(1+rng.IntN(20)))
			for i := range noise {
				noise[i] = byte(rng.Uint32())
			}
			_, err := f.WriteAt(noise, rng.Int64N(size-int64(len(noise))))
			require.NoError(t, err)
		}
		readAll(t, tx.Get)
		tx.Rollback()
		readAll(t, reader.Get)
		reader.Check(t.Context())
		require.NoError(t, reader.Close())
		require.NoError(t, f.Close())
		mem.Release()
	}
}

// TestBesideFlippedBits: a page with one flipped bit is detected, whatever the bit belongs to.
func TestBesideFlippedBits(t *testing.T) {
	besideWithin(t)
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	opts := (&Options{Durability: WriteThrough}).engine()
	opts.Store.SegmentPages, opts.Store.ChunkPages = 16, 64
	key := func(i int) []byte { return fmt.Appendf(nil, "%03d", i) }
	writer, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	const records = 60
	value := func(i int) []byte { return sized(60*i, byte(i)) } // some in leaves, some in runs
	for i := range records {
		require.NoError(t, writer.Put(key(i), value(i)))
	}
	require.NoError(t, writer.Close())
	f, err := mem.Open("db", os.O_RDWR, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	failed := 0
	for page := int64(0); page < size/4096; page++ {
		reader, err := openBeside(mem, "db", opts)
		require.NoError(t, err)
		off := page*4096 + 3000 + 97*(page%10) // values are stored from the end of a leaf downwards
		var b [1]byte
		_, err = f.ReadAt(b[:], off)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 4}, off)
		require.NoError(t, err)
		for i := range records {
			v, err := reader.Get(key(i))
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				failed++
			} else {
				require.True(t, bytes.Equal(value(i), v), "page %d, record %d", page, i)
			}
		}
		require.NoError(t, reader.Close())
		_, err = f.WriteAt(b[:], off)
		require.NoError(t, err)
	}
	require.Positive(t, failed)
	require.NoError(t, f.Close())
}

// TestBesideGoroutines: many goroutines read through one handle beside a writer.
func TestBesideGoroutines(t *testing.T) {
	for name, leases := range map[string]mvcc.LeaseOptions{"": {}, "aging": {MaxAge: time.Millisecond, Trace: true}} {
		t.Run(name, func(t *testing.T) { besideGoroutines(t, leases) })
	}
}

func besideGoroutines(t *testing.T, leases mvcc.LeaseOptions) {
	besideWithin(t)
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	opts := (&Options{Durability: WriteThrough, MemoryLimit: 1 << 20, RedoLimit: 1 << 20}).engine()
	opts.Store.SegmentPages, opts.Store.ChunkPages = 16, 64
	writer, err := openEngine(mem, "db", opts)
	require.NoError(t, err)
	require.NoError(t, writer.Put([]byte("00"), binary.BigEndian.AppendUint64(nil, 0)))
	opts.Leases = leases
	reader, err := openBeside(mem, "db", opts)
	require.NoError(t, err)
	var acked atomic.Uint64
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				floor := max(last, acked.Load())
				err := reader.View(func(tx *Tx) error {
					at := uint64(0)
					for k, v := range tx.All() {
						n := binary.BigEndian.Uint64(v)
						if string(k) == "00" {
							at = n
						} else if n != at {
							t.Errorf("%s has %d, the first key %d", k, n, at)
						}
					}
					if err := tx.Err(); err != nil {
						return err
					}
					if at < floor {
						t.Errorf("%d seen after %d", at, floor)
					}
					last = at
					return nil
				})
				if err != nil && !errors.Is(err, ErrSnapshotTooOld) {
					t.Error(err)
				}
			}
		})
	}
	for n := uint64(1); n < 400; n++ {
		require.NoError(t, writer.Update(func(tx *Tx) error {
			for i := range 40 {
				if err := tx.Put(fmt.Appendf(nil, "%02d", i), append(binary.BigEndian.AppendUint64(nil, n), make([]byte, 300)...)); err != nil {
					return err
				}
			}
			return nil
		}))
		acked.Store(n)
		if n%50 == 0 {
			require.NoError(t, writer.Checkpoint())
		}
	}
	close(done)
	wg.Wait()
	require.NoError(t, reader.Check(t.Context()))
	require.NoError(t, reader.Close())
	require.NoError(t, writer.Close())
}
