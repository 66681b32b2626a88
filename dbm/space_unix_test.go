//go:build unix

package dbm

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

// These tests check the disk space of a database all the time, and not only at the end. make space runs them at
// full size.
var (
	spaceFull  = flag.Bool("space.full", false, "run the space tests at full size: hours, and 3 GB of disk")
	spaceTotal = flag.Int("space.total", 10<<30, "bytes of records overwritten at full size")
	spaceSeed  = flag.Uint64("space.seed", 1, "of the records that are overwritten")
	spaceTrace = flag.Bool("space.trace", false, "tell at each checkpoint what the file consists of")
)

// scale returns one of two sizes.
func scale(full, small int) int {
	if *spaceFull {
		return full
	}
	return small
}

// A spaceRun is a database whose blocks on disk are observed.
type spaceRun struct {
	t       *testing.T
	path    string
	db      *DB
	most    int64            // most bytes that it took,
	account logstore.Account // what these were used for,
	all     []int64          // and what it took at each checkpoint
	at      uint64
	paced   bool // writers wait for background work as soon as it is due, so that the size does not depend on how busy the machine is
}

// inMiB formats an account.
func inMiB(a logstore.Account) string {
	mib := func(pages int64) int64 { return pages * 4 >> 10 }
	return fmt.Sprintf("MiB: live %d, sparse %d, log %d, waiting %d, named %d, held %d, values %d, free %d, leaving %d",
		mib(a.Live), mib(a.Sparse), mib(a.Log), mib(a.Waiting), mib(a.Named), mib(a.Held), mib(a.Values), mib(a.Free), mib(a.Leaving))
}

func newSpaceRun(t *testing.T, o *Options) *spaceRun {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	path := filepath.Join(t.TempDir(), "db")
	db, err := openUnsynced(path, o)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return &spaceRun{t: t, path: path, db: db}
}

// blocks returns the bytes that the file takes on disk.
func (r *spaceRun) blocks() int64 {
	var st syscall.Stat_t
	require.NoError(r.t, syscall.Stat(r.path, &st))
	return st.Blocks * 512
}

// look records the size of the file if there was a checkpoint since the last call.
func (r *spaceRun) look() {
	if n := r.db.engine.Checkpoints(); n != r.at {
		r.at = n
		blocks := r.blocks()
		if blocks > r.most {
			r.most, r.account = blocks, r.db.engine.Account()
		}
		r.all = append(r.all, blocks)
		if *spaceTrace {
			s, _ := r.db.engine.Stats()
			fmt.Printf("%v checkpoint %d: %d MiB on disk, %d records, log %d MiB, redo %d, dirty %d, reserved %d, cleaned %d, table %d, %s\n", time.Now().Format("05.000"), n, blocks>>20,
				s.Records, s.Log.Pages>>8, s.RedoBytes>>20, s.DirtyPages>>8, s.Space.ReservedBytes>>20, s.Cleaned, s.Pages.TableEntries, inMiB(r.db.engine.Account()))
		}
	}
}

func spaceKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// update calls fn for the numbers from 0 to n-1, with the given number of calls per transaction.
func (r *spaceRun) update(n, per int, fn func(tx *Tx, i int) error) {
	for i := 0; i < n; i += per {
		require.NoError(r.t, r.db.Update(func(tx *Tx) error {
			for j := i; j < min(i+per, n); j++ {
				if err := fn(tx, j); err != nil {
					return err
				}
			}
			return nil
		}))
		r.look()
		for r.paced {
			if s, err := r.db.engine.Stats(); err != nil || s.RedoBytes < defaultRedoLimit {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// fill puts n records of the given size, key included, in order.
func (r *spaceRun) fill(n, size int) {
	value := make([]byte, size-8)
	r.update(n, 1000, func(tx *Tx, i int) error { return tx.Put(spaceKey(i), value) })
}

// fresh returns the size of a database with n records of the given size that was filled in order and closed.
func fresh(t *testing.T, n, size int) int64 {
	r := newSpaceRun(t, nil)
	r.fill(n, size)
	require.NoError(t, r.db.Close())
	b := r.blocks()
	require.NoError(t, os.Remove(r.path))
	return b
}

// Random overwrites of more than ten times the database keep the file small at every checkpoint.
func TestSpaceOverwrites(t *testing.T) {
	t.Parallel()
	live := scale(200<<20, 10<<20)
	total := scale(*spaceTotal, 100<<20)
	for _, size := range []int{100, 1000} {
		for _, dist := range []string{"uniform", "zipfian"} {
			t.Run(fmt.Sprintf("%d bytes, %s", size, dist), func(t *testing.T) {
				if !*spaceFull && (size == 100) != (dist == "zipfian") {
					t.Skip("make space runs it")
				}
				n := live / size
				want := fresh(t, n, size)
				r := newSpaceRun(t, nil)
				r.fill(n, size)
				r.most, r.all = 0, nil
				before, began := r.db.Stats(), time.Now()
				rng := rand.New(rand.NewPCG(*spaceSeed, 1))
				zipf := rand.NewZipf(rng, 1.1, 1, uint64(n-1))
				value := make([]byte, size-8)
				r.update(total/size, 100, func(tx *Tx, i int) error {
					k := rng.IntN(n)
					if dist == "zipfian" {
						k = int(zipf.Uint64() * 0x9E3779B1 % uint64(n))
					}
					binary.LittleEndian.PutUint64(value, uint64(i))
					return tx.Put(spaceKey(k), value)
				})
				took, s := time.Since(began), r.db.Stats()
				slices.Sort(r.all)
				t.Logf("%d MiB at most, %d in the median, %.2f of the %d MiB of a fresh load, which has %d MiB of pages; %.0f thousand records a second, %.3f pages a record", r.most>>20, r.all[len(r.all)/2]>>20,
					float64(r.most)/float64(want), want>>20, before.LiveBytes>>20, float64(total/size)/took.Seconds()/1000, float64(s.PagesWritten-before.PagesWritten)/float64(total/size))
				t.Logf("at most %s; live %d", inMiB(r.account), s.LiveBytes>>20)
				if *spaceFull {
					require.Less(t, float64(r.most)/float64(want), 1.5)
				}
				require.NoError(t, r.db.Check(t.Context()))
			})
		}
	}
}

// The space of deleted records goes back to the file system while the database is in use, without any call.
func TestSpaceOfDeleted(t *testing.T) {
	t.Parallel()
	r := newSpaceRun(t, nil)
	n := scale(1<<30, 80<<20) / 200 // with half as many, the reserve, which does not shrink, was at times a page more than is allowed here
	r.fill(n, 200)
	before := r.blocks()
	rng := rand.New(rand.NewPCG(1, 1))
	gone := rng.Perm(n)[:n/10*9]
	r.update(len(gone), 1000, func(tx *Tx, i int) error { return tx.Delete(spaceKey(gone[i])) })
	start := time.Now()
	for r.blocks() > before/int64(scale(5, 3)) && time.Since(start) < patience {
		require.NoError(t, r.db.Put(spaceKey(gone[0]), []byte("still here")))
		r.look()
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d MiB with all, %d MiB with a tenth after %v; live %d", before>>20, r.blocks()>>20, time.Since(start), r.db.Stats().LiveBytes>>20)
	require.LessOrEqual(t, r.blocks(), before/int64(scale(5, 3))) // the reserve does not shrink
	require.NoError(t, r.db.Check(t.Context()))
}

// With one record per transaction in ascending order, pages are full, and of all pages written only the last
// version of each leaf is kept.
func TestSpaceOfAscending(t *testing.T) {
	t.Parallel()
	r := newSpaceRun(t, nil)
	n := scale(1_000_000, 20_000)
	var value [8]byte
	r.update(n, 1, func(tx *Tx, i int) error {
		return tx.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), value[:])
	})
	s := r.db.Stats()
	require.NoError(t, r.db.Close())
	require.LessOrEqual(t, r.blocks(), int64(24e6))
	t.Logf("%.1f MB after Close, %.1f MB at most before; %.3f pages a commit, %d cleaned", float64(r.blocks())/1e6, float64(r.most)/1e6, float64(s.PagesWritten)/float64(n), s.PagesCleaned)
}

// A small database is overwritten a thousand times.
func TestSpaceOfSmall(t *testing.T) {
	r := newSpaceRun(t, &Options{Durability: Buffered})
	const n = 10_000
	r.fill(n, 100)
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 92)
	r.paced = !*spaceFull
	r.update(n*scale(1000, 100), 10, func(tx *Tx, i int) error { return tx.Put(spaceKey(rng.IntN(n)), value) })
	t.Logf("%d MiB at most", r.most>>20)
	require.LessOrEqual(t, max(r.most, r.blocks()), int64(64<<20))
}
