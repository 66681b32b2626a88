package dbm

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// loggedValues returns a database whose leaves have the places of logged values.
func loggedValues(t *testing.T) *specimen {
	s := filled(t, &load{segmentPages: 8, keys: 300, style: 3, ops: 60, deletes: 5, even: 300, memoryLimit: 1 << 20, redoLimit: 1 << 20, stepPages: 3}, true)
	s.spoiled(func(h *hostile) {
		n := 0
		for _, a := range h.inner[0] {
			n += len(h.places(a))
		}
		require.NotZero(t, n)
	})
	return s
}

// keysOf returns all keys of a database.
func keysOf(t *testing.T, db *DB) (keys []string) {
	require.NoError(t, db.View(func(tx *Tx) error {
		c := tx.Cursor()
		for ok := c.First(); ok; ok = c.Next() {
			keys = append(keys, string(c.Key()))
		}
		return c.Err()
	}))
	return keys
}

// TestHostilePlaces: places of logged values are outside the file or in the superblocks. The records can be
// deleted, and the file can be opened again.
func TestHostilePlaces(t *testing.T) {
	whole := loggedValues(t)
	for _, to := range []uint64{1<<48 - 1, uint64(len(whole.file)) / logstore.PageSize, 0, 1} {
		s := whole.spoiled(func(h *hostile) {
			for _, a := range h.inner[0] {
				for _, at := range h.places(a) {
					p := h.page(a)[at:]
					le.PutUint64(p, le.Uint64(p)&placeAt|to<<18)
				}
			}
		})
		mem := s.mem(len(s.file))
		defer mem.Release()
		for left := true; left; {
			db, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
			require.NoError(t, err)
			keys := keysOf(t, db)
			left = len(keys) > 0
			for _, k := range keys {
				require.NoError(t, db.Delete([]byte(k)))
			}
			require.NoError(t, db.Checkpoint())
			require.NoError(t, db.Close())
		}
	}
}

// TestHostileMask: the space map says that a leaf has a logged value, and a record of another leaf refers to it.
// Deleting the record must not free the leaf.
func TestHostileMask(t *testing.T) {
	var victim string
	s := loggedValues(t).spoiled(func(h *hostile) {
		size := h.segment / logstore.PageSize
		entries := h.spaceMap(h.newestMap())
		from, to := 0, 0 // two live leaves: one with places, and one in a segment with logged values
		for _, a := range h.inner[0] {
			if e := entries[a/size]; len(e) <= mapLive || le.Uint64(e[mapLive:])>>(a%size)&1 == 0 {
				continue
			} else if to == 0 && len(e) > mapMasks {
				to = a
			} else if len(h.places(a)) > 0 {
				from = a
			}
		}
		require.NotZero(t, from)
		require.NotZero(t, to)
		at := h.places(from)[0]
		victim = h.keyBefore(from, at)
		le.PutUint64(h.page(from)[at:], uint64(to)<<18|uint64(logstore.MuxSize)<<4)
		le.PutUint16(entries[to/size][mapMasks+maskBytes*(to%size):], 1)
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	open := func() *DB {
		db, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
		require.NoError(t, err)
		return db
	}
	db := open()
	keys := keysOf(t, db)
	require.Contains(t, keys, victim)
	require.NoError(t, db.Delete([]byte(victim)))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())
	db = open()
	defer db.Close()
	require.Len(t, keysOf(t, db), len(keys)-1)
}

// TestHostileCount: a file says that it has one record. All of its records can be deleted, and Len returns an
// answer.
func TestHostileCount(t *testing.T) {
	s := loggedValues(t).spoiled(func(h *hostile) {
		le.PutUint64(h.page(h.newestMap())[tableCount-8:], 1) // the number of records, before the number of entries
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	db, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
	require.NoError(t, err)
	defer db.Close()
	keys := keysOf(t, db)
	require.Greater(t, len(keys), 1)
	for _, k := range keys {
		require.NoError(t, db.Delete([]byte(k)))
	}
	answered := make(chan error, 1)
	go func() {
		n, err := db.Len()
		if err == nil && n != 0 {
			err = errors.New("records are left")
		}
		db.Check(context.Background())
		answered <- err
	}()
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("nobody answers")
	}
}
