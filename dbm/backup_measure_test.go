package dbm

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

var (
	backupMeasure = flag.Int("backup.measure", 0, "measure backups of a database with this number of records, while writers go on")
	backupDir     = flag.String("backup.dir", "", "directory of the measured database; empty: a temporary one")
	backupValue   = flag.Int("backup.value", 100, "bytes of its values")
	backupRounds  = flag.Int("backup.rounds", 2, "how often writers are measured alone and beside backups, by turns")
	backupTurn    = flag.Duration("backup.turn", 10*time.Second, "for how long each time")
	backupInto    = flag.String("backup.into", "", "file that backups go to, anew each time: they are synced, and removed; empty: they are counted and dropped")
	backupWriters = flag.Int("backup.durability", int(Durable), "durability of the commits, as a number")
)

// TestMeasureBackup measures how long a commit of four writers takes without a backup and during successive
// backups, how long a backup is compared with the file and the compacted file, and how long backup and restore
// take.
func TestMeasureBackup(t *testing.T) {
	if *backupMeasure == 0 {
		t.Skip("-backup.measure tells how many records")
	}
	dir := *backupDir
	if dir == "" {
		dir = t.TempDir()
	}
	db, err := Open(filepath.Join(dir, "source"), &Options{Durability: Durability(*backupWriters)})
	require.NoError(t, err)
	defer db.Close()
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), i*0x9E3779B97F4A7C15) }
	value := make([]byte, *backupValue)
	for i := 0; i < *backupMeasure; {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for range min(10_000, *backupMeasure-i) {
				if err := tx.Put(key(uint64(i)), value); err != nil {
					return err
				}
				i++
			}
			return nil
		}))
	}
	require.NoError(t, db.Checkpoint())
	tails := func(name string, beside func(ctx context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), *backupTurn)
		defer cancel()
		before := db.Stats()
		var wg sync.WaitGroup
		took := make([][]time.Duration, 4)
		for w := range took {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(w)))
				for ctx.Err() == nil {
					begin := time.Now()
					if err := db.Put(key(r.Uint64N(uint64(*backupMeasure))), value); err != nil {
						t.Error(err)
						return
					}
					took[w] = append(took[w], time.Since(begin))
				}
			})
		}
		if beside != nil {
			beside(ctx)
		}
		wg.Wait()
		after := db.Stats()
		t.Logf("%-14s %d MB written, file %d -> %d MB, %d syncs of %v, %d delayed by %v, %d checkpoints", name, (after.PagesWritten-before.PagesWritten)*4096/1e6, before.FileBytes/1e6, after.FileBytes/1e6,
			after.Syncs-before.Syncs, (after.SyncTime-before.SyncTime)/time.Duration(max(1, after.Syncs-before.Syncs)), after.DelayedCommits-before.DelayedCommits, after.DelayTime-before.DelayTime, after.Checkpoints-before.Checkpoints)
		all := slices.Sorted(slices.Values(slices.Concat(took...)))
		at := func(share float64) time.Duration { return all[int(share*float64(len(all)-1))] }
		t.Logf("%-14s %7d commits, p50 %v, p99 %v, p99.9 %v, most %v", name, len(all), at(0.5), at(0.99), at(0.999), all[len(all)-1])
	}
	backups := func(ctx context.Context) {
		n, bytes, begin := 0, int64(0), time.Now()
		for ctx.Err() == nil {
			w := &counting{}
			if measuredBackup(db, ctx, w) == nil {
				n++
				bytes += w.n
			}
		}
		t.Logf("%d backups, %.0f MB/s", n, float64(bytes)/1e6/time.Since(begin).Seconds())
	}
	for range *backupRounds {
		tails("writers alone", nil)
		tails("with backups", backups)
	}
	require.NoError(t, db.Checkpoint())
	before := db.Stats().FileBytes
	w := &counting{}
	begin := time.Now()
	require.NoError(t, backupErr(db, t.Context(), w))
	took := time.Since(begin)
	require.NoError(t, db.Compact(t.Context(), nil))
	t.Logf("backup at rest: %v, %.0f MB/s; %d bytes, of a file of %d, compacted %d", took, float64(w.n)/1e6/took.Seconds(), w.n, before, db.Stats().FileBytes)

	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(backupErr(db, t.Context(), pw)) }()
	begin = time.Now()
	require.NoError(t, restoreErr(t.Context(), filepath.Join(dir, "restored"), pr))
	t.Logf("backup into restore: %v, %.0f MB/s", time.Since(begin), float64(w.n)/1e6/time.Since(begin).Seconds())
	begin = time.Now()
	restored, err := Open(filepath.Join(dir, "restored"), nil)
	require.NoError(t, err)
	t.Logf("open of what was restored: %v", time.Since(begin))
	require.NoError(t, restored.Close())
}

// measuredBackup takes a backup as -backup.into says.
func measuredBackup(db *DB, ctx context.Context, w *counting) (err error) {
	if *backupInto == "" {
		return backupErr(db, ctx, w)
	}
	f, err := os.Create(*backupInto)
	if err != nil {
		return err
	}
	w.file = vfs.InSteps(f)
	if err = backupErr(db, ctx, w); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(*backupInto))
}

// counting counts what is written, and passes it on to the file if there is one.
type counting struct {
	n    int64
	file io.Writer
}

func (c *counting) Write(b []byte) (int, error) {
	c.n += int64(len(b))
	if c.file != nil {
		return c.file.Write(b)
	}
	return len(b), nil
}
