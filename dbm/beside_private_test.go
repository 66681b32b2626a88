package dbm

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// Value runs of transactions that do not stay in memory are in private segments, outside the log's chain. These are
// reused too, with runs at the same places. A reader that takes a reused segment for the earlier one would get a
// complete value of the right length.

const privateRecords = 24

func privateKey(i int) []byte          { return fmt.Appendf(nil, "%03d", i) }
func privateValue(i, round int) []byte { return sized(5000, byte(7*i+round)) }

func privateOptions() mvcc.Options {
	opts := (&Options{Durability: WriteThrough, MemoryLimit: 1 << 20}).engine()
	opts.Store.SegmentPages, opts.Store.ChunkPages = 16, 64
	opts.Shares.WriteSets, opts.Shares.Batch = 24<<10, 64<<10
	opts.Manual = true
	return opts
}

// writePrivate overwrites all records in one transaction, most of which leaves memory.
func writePrivate(t *testing.T, writer *DB, round int) {
	t.Helper()
	require.NoError(t, writer.Update(func(tx *Tx) error {
		for i := range privateRecords {
			if err := tx.Put(privateKey(i), privateValue(i, round)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestBesidePrivateHeld: a snapshot is held while the reader follows transactions whose runs replace those that the
// snapshot sees. Cursors hold the leaf, so only values can be too old.
func TestBesidePrivateHeld(t *testing.T) {
	besideWithin(t)
	mem := vfs.NewMem(64 << 20)
	defer mem.Release()
	writer, err := openEngine(mem, "db", privateOptions())
	require.NoError(t, err)
	writePrivate(t, writer, 0)
	reader, err := openBeside(mem, "db", privateOptions())
	require.NoError(t, err)
	held, err := reader.Begin(TxOptions{ReadOnly: true})
	require.NoError(t, err)
	cursors := make([]*Cursor, privateRecords)
	for i := range cursors {
		cursors[i] = held.Cursor()
		require.True(t, cursors[i].Seek(privateKey(i)))
	}
	tooOld := 0
	for round := 1; round <= 8; round++ {
		writePrivate(t, writer, round)
		v, err := reader.Get(privateKey(0))
		require.NoError(t, err)
		require.True(t, bytes.Equal(privateValue(0, round), v))
		for i := round; i < privateRecords; i += 8 { // records that were not read before
			v := cursors[i].Value()
			if err := cursors[i].Err(); err != nil {
				require.ErrorIs(t, err, ErrSnapshotTooOld)
				tooOld++
			} else {
				require.True(t, bytes.Equal(privateValue(i, 0), v), "round %d, record %d", round, i)
			}
		}
		require.NoError(t, writer.Checkpoint())
	}
	require.Positive(t, tooOld, "the segments are used again")
	require.NoError(t, held.Rollback())
	require.NoError(t, reader.Close())
	require.NoError(t, writer.Close())
}

// interludeFS runs calls during a reader's calls: before the read with the number at.
type interludeFS struct {
	vfs.FS
	reads, at int
	do        func()
}

type interludeFile struct {
	vfs.File
	fs *interludeFS
}

func (f *interludeFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &interludeFile{file, f}, nil
}

func (f *interludeFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fs.reads++; f.fs.reads == f.fs.at {
		f.fs.do()
	}
	return f.File.ReadAt(p, off)
}

// TestBesidePrivateInterlude: a reader reads such a transaction. Between any two of its reads, the writer
// overwrites the transaction so often that its segments are reused. The reader shows one complete state, or reports
// that it was too slow.
func TestBesidePrivateInterlude(t *testing.T) {
	besideWithin(t)
	base := vfs.NewMem(64 << 20)
	defer base.Release()
	writer, err := openEngine(base, "db", privateOptions())
	require.NoError(t, err)
	writePrivate(t, writer, 0)
	require.NoError(t, writer.Close())
	step, tried := 1, 0
	if testing.Short() {
		step = 5
	}
	for at, came := 1, true; came; at, tried = at+step, tried+1 {
		came = besideInterlude(t, base.Clone(), at)
	}
	require.Greater(t, tried, 60/step)
}

func besideInterlude(t *testing.T, mem *vfs.Mem, at int) (came bool) {
	defer mem.Release()
	writer, err := openEngine(mem, "db", privateOptions())
	require.NoError(t, err)
	fs := &interludeFS{FS: mem}
	reader, err := openBeside(fs, "db", privateOptions())
	require.NoError(t, err)
	round := 1
	writePrivate(t, writer, round)
	fs.at = fs.reads + at
	fs.do = func() {
		came = true
		for range 2 + at%5 {
			round++
			writePrivate(t, writer, round)
			require.NoError(t, writer.Checkpoint())
		}
	}
	err = reader.View(func(tx *Tx) error {
		seen := -1
		for i := range privateRecords {
			v, err := tx.Get(privateKey(i))
			if err != nil {
				return err
			}
			for r := 1; seen < 0 && r <= round; r++ {
				if bytes.Equal(privateValue(i, r), v) {
					seen = r
				}
			}
			require.True(t, bytes.Equal(privateValue(i, seen), v), "read %d, record %d, state %d", at, i, seen)
		}
		return nil
	})
	if err != nil {
		require.ErrorIs(t, err, ErrSnapshotTooOld, "read %d", at)
	}
	require.NoError(t, reader.Close())
	require.NoError(t, writer.Close())
	return came
}
