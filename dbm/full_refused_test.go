package dbm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// TestFullOverwriteLogged: on a full file, values that stay in the log are overwritten at random, one per commit. The
// last page of a commit contains little else and stays live for its value. Room is in pages of earlier values that are
// mostly dead.
func TestFullOverwriteLogged(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, 15 times as long here")
	}
	overwriteFull(t, 4<<20, 300, 1500)
}

// TestFullOverwriteRuns: the same for values of more than half a page, each in its own pages, in a file of 16 MiB. In
// files of 8 MiB or less such values find no room, because each page that moves makes a leaf dirty.
func TestFullOverwriteRuns(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, 15 times as long here")
	}
	overwriteFull(t, 16<<20, 3000, 2000)
}

// overwriteFull fills a file of the given size with values of the given size, and overwrites the given number of them
// at random.
func overwriteFull(t *testing.T, limit int64, size, overwrites int) {
	opts := (&Options{}).engine()
	opts.Manual, opts.Store.ChunkPages, opts.Store.MaxFileSize = true, 1<<10, limit
	f := &fullFile{t: t, rng: rand.New(rand.NewPCG(1, 1)), mem: vfs.NewMem(0), opts: opts, size: size}
	defer func() { f.mem.Release() }()
	f.open()
	defer f.close()
	for per := 20; per > 0; per /= 2 {
		for n := len(f.keys); ; n += per {
			err := f.commit(func(tx *Tx) error {
				for i := range per {
					if err := tx.Put(f.key(n+i), make([]byte, f.size)); err != nil {
						return err
					}
				}
				return nil
			})
			if errors.Is(err, ErrFull) {
				break
			}
			require.NoError(t, err)
			for i := range per {
				f.keys = append(f.keys, n+i)
			}
		}
	}
	t.Logf("%d records", len(f.keys))
	for n := range overwrites {
		i := f.keys[f.rng.IntN(len(f.keys))]
		require.NoError(t, f.commit(func(tx *Tx) error { return tx.Put(f.key(i), make([]byte, f.size)) }), "overwrite %d", n)
	}
	f.check()
}

// TestExpiredOnAFullFile: records that have expired in a full file are deleted, although one transaction with a
// thousand of them finds no room for the leaves that it changes. Afterwards there is room for others.
func TestExpiredOnAFullFile(t *testing.T) {
	db, clock := newExpiring(t, &Options{MaxFileSize: 1 << 20, Durability: Buffered})
	refused := error(nil)
	records := 0
	for ; refused == nil; records += 20 {
		refused = db.Update(func(tx *Tx) error {
			for i := records; i < records+20; i++ {
				if err := tx.PutTTL(binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15), make([]byte, 20), time.Hour); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.ErrorIs(t, refused, ErrFull)
	require.Greater(t, records, 2*overKeys)
	clock.pass(2 * time.Hour)
	_, err := db.DeleteExpired(t.Context())
	require.NoError(t, err)
	require.Empty(t, indexOf(t, db))
	require.NoError(t, db.Put([]byte("again"), make([]byte, 10_000)))
	require.NoError(t, db.Check(t.Context()))
}

// TestDropOnAFullFile: keyspaces that fill a file are dropped one after the other. Their space can then be used for
// other records.
func TestDropOnAFullFile(t *testing.T) {
	for _, c := range []struct{ size, spaces int }{{1000, 1}, {60, 20}, {3000, 2}} {
		dropAllOfFull(t, 1<<20, c.size, c.spaces)
	}
}

// dropAllOfFull fills keyspaces with records in random order until there is no room for a single one, and drops all of
// them.
func dropAllOfFull(t *testing.T, limit int64, size, spaces int) {
	db := newWith(t, openUnsynced, &Options{MaxFileSize: limit, Durability: Buffered})
	for i := range spaces {
		require.NoError(t, db.CreateKeyspace(fmt.Sprint(i)))
	}
	n := 0
	for per := 32; per > 0; per /= 2 {
		refused := error(nil)
		for ; refused == nil; n += per {
			refused = db.Update(func(tx *Tx) error {
				for i := n; i < n+per; i++ {
					space, err := tx.Keyspace(fmt.Sprint(i % spaces))
					if err != nil {
						return err
					}
					if err := space.Put(binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15), make([]byte, size)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.ErrorIs(t, refused, ErrFull)
	}
	for i := range spaces {
		require.NoError(t, db.DropKeyspace(fmt.Sprint(i)), "%d bytes, values of %d, the %dth of %d", limit, size, i, spaces)
	}
	require.NoError(t, db.FinishDrops(t.Context()))
	require.NoError(t, db.Put([]byte("again"), make([]byte, 10_000)))
	require.NoError(t, db.Check(t.Context()))
}
