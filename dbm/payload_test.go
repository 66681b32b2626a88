package dbm

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// perTx returns how many records load puts in a transaction.
func (f *fullFile) perTx() int { return min(20, max(1, 8000/f.size)) }

// load puts up to n records, beginning with the first, until the file is full, and returns how many. If there is no
// room for a transaction of several records, it tries single ones.
func (f *fullFile) load(n int) (put int) {
	for per := f.perTx(); put < n; {
		per = min(per, n-put)
		err := f.commit(func(tx *Tx) error {
			for i := range per {
				if err := tx.Put(f.key(put+i), make([]byte, f.size)); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case err == nil:
			put += per
		case errors.Is(err, ErrFull) && per == 1:
			return put
		case errors.Is(err, ErrFull):
			per = 1
		default:
			require.NoError(f.t, err)
		}
	}
	return put
}

// TestFullPayload: in a file with a limit, keys and values can take a certain share before a put is refused, and a
// larger share the larger the limit. On the full file, the records can be loaded again in place of themselves, and
// deleted.
func TestFullPayload(t *testing.T) {
	limits := []int64{1, 2, 3, 4, 6, 8, 16, 32, 64, 128}
	sizes, deleted := []int{40, 100, 400, 1000}, 20_000
	if !*fullAll {
		limits, sizes, deleted = []int64{1, 4, 6}, []int{40, 400, 1000}, 5_000
		if testing.Short() {
			limits, sizes = []int64{4, 6}, []int{1000}
		}
		if raceEnabled {
			t.Skip("one goroutine that puts and deletes, 15 times as long here")
		}
	}
	for _, device := range []bool{false, true} {
		for _, size := range sizes {
			t.Run(fmt.Sprintf("%t-%dB", device, size), func(t *testing.T) {
				t.Parallel()
				last := 0.0
				for _, mib := range limits {
					if size == 40 && mib == 6 && !*fullAll {
						continue // 100,000 records; make full includes them
					}
					mem := vfs.NewMem(0)
					opts := (&Options{Durability: WriteThrough}).engine()
					if opts.Store.ChunkPages = 1 << 10; device {
						mem.SetMaxBytes(mib << 20)
					} else {
						opts.Store.MaxFileSize = mib << 20
					}
					began := time.Now()
					f := &fullFile{t: t, rng: rand.New(rand.NewPCG(uint64(mib), uint64(size))), mem: mem, opts: opts, size: size - 8, inOrder: true}
					f.open()
					n := f.load(math.MaxInt)
					filled := time.Since(began)
					share := float64(n*size) / float64(mib<<20)
					before := f.db.Stats().PagesWritten
					again, some := 0, n
					if mib > 1 && !*fullAll { // with 1 MiB, where pages are counted below, everything is loaded again
						some = min(n, 10_000)
					}
					again = f.load(some)
					pages := float64(f.db.Stats().PagesWritten-before) / float64(some)
					t.Logf("%d MiB, records of %d bytes: %.1f%% payload in %v, %d segments; loaded again: %d of %d in %v, %.1f pages each", mib, size, share*100, filled.Round(time.Millisecond),
						len(f.db.Segments()), again, some, (time.Since(began) - filled).Round(time.Millisecond), pages)
					require.Equal(t, some, again, "loaded again")
					if mib == 1 { // two to four times as many if replacements wait for the room that puts leave
						require.Less(t, pages*float64(f.perTx()), 133.5, "pages for a transaction")
					}
					for i := range n {
						f.keys = append(f.keys, i)
					}
					f.check()
					switch {
					case mib >= 64:
						require.GreaterOrEqual(t, share, 0.70)
					case mib >= 4:
						require.GreaterOrEqual(t, share, 0.55)
					default:
						require.Greater(t, share, 0.15)
					}
					require.Greater(t, share, last-0.02)
					last = share
					f.deleteSome(min(n, deleted), nil)
					f.close()
					mem.Release()
				}
			})
		}
	}
}

// TestFullPayloadAtRandom: with random order, each full leaf is split in two. Before a put is refused, leaves are
// filled up.
func TestFullPayloadAtRandom(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, 15 times as long here")
	}
	limits, sizes := []int64{4, 8, 16, 32, 64}, []int{40, 100, 400, 1000}
	if !*fullAll {
		limits, sizes = []int64{4}, []int{100, 1000}
	}
	for _, durability := range []Durability{WriteThrough, Buffered} {
		for _, size := range sizes {
			if durability == Buffered && size < 256 {
				continue // values are in leaves, as above
			}
			t.Run(fmt.Sprintf("%d-%dB", durability, size), func(t *testing.T) {
				t.Parallel()
				last := 0.0
				for _, mib := range limits {
					last = payloadAtRandom(t, durability, mib, size, last)
				}
			})
		}
	}
}

// payloadAtRandom fills a file in random order and returns the share of keys and values, which must not be less
// than that of a smaller file.
func payloadAtRandom(t *testing.T, durability Durability, mib int64, size int, last float64) (share float64) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	opts := (&Options{Durability: durability}).engine()
	opts.Store.ChunkPages, opts.Store.MaxFileSize = 1<<10, mib<<20
	f := &fullFile{t: t, rng: rand.New(rand.NewPCG(1, uint64(size))), mem: mem, opts: opts, size: size - 8, random: true}
	f.open()
	began, longest := time.Now(), time.Duration(0)
	for per := f.perTx(); per > 0; {
		from := time.Now()
		err := f.commit(func(tx *Tx) error {
			for i := range per {
				if err := tx.Put(f.key(len(f.keys)+i), make([]byte, f.size)); err != nil {
					return err
				}
			}
			return nil
		})
		longest = max(longest, time.Since(from))
		if err == nil {
			for range per {
				f.keys = append(f.keys, len(f.keys))
			}
			continue
		}
		require.ErrorIs(t, err, ErrFull)
		per /= 2
	}
	put := len(f.keys)
	share = float64(put*size) / float64(mib<<20)
	pages := float64(f.db.Stats().PagesWritten) / float64(put)
	t.Logf("%d MiB, records of %d bytes in random order: %.1f%% payload in %v, at most %v for a transaction, %.1f pages a record", mib, size, share*100, time.Since(began).Round(time.Millisecond),
		longest.Round(time.Millisecond), pages)
	before, some := f.db.Stats().PagesWritten, uint64(20)
	for refused := uint64(0); refused < some; {
		if err := f.db.Put(f.key(len(f.keys)), make([]byte, f.size)); err != nil {
			require.ErrorIs(t, err, ErrFull)
			refused++
			continue
		}
		f.keys = append(f.keys, len(f.keys))
	}
	refused := (f.db.Stats().PagesWritten - before) / some
	require.Less(t, refused, uint64(mib<<20/logstore.PageSize/4), "a put that is refused does not write the tree anew")
	f.check()
	wanted := 0.55
	if mib >= 64 {
		wanted = 0.70
	}
	require.GreaterOrEqual(t, share, wanted)
	require.Greater(t, share, last-0.02)
	f.deleteSome(put/2, nil)
	f.check()
	f.close()
	return share
}
