package dbm

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestHostileTwice: two records refer to one value, or two parents to one leaf. What they refer to is deleted
// through one of them, and overwritten. Check finds this before anything is written. Through the other one, a
// reader gets data or ErrCorrupt. What was written since the file was opened, and is not reached through such
// references, is unchanged.
func TestHostileTwice(t *testing.T) {
	inTurn(t)
	for name, change := range map[string]func(h *hostile) bool{
		"value": func(h *hostile) bool {
			runs, order := map[string][]byte{}, [][]byte(nil) // references, each with the one to replace it
			for _, a := range h.inner[0] {                    // some of which are dead
				for _, at := range h.refs(a) {
					r := h.page(a)[at : at+16]
					to := h.page(int(le.Uint64(r) % uint64(len(h.file)/logstore.PageSize)))
					if logstore.Kind(to[4]) != logstore.KindRun || le.Uint32(to[runCRC+4:]) == 1 { // it is no longer a value, or it is a list
						continue
					}
					if runs[string(r)] == nil {
						order = append(order, bytes.Clone(r))
						runs[string(r)] = order[(len(order)-1)&^1]
					}
					copy(r, runs[string(r)])
				}
			}
			return len(order) > 1
		},
		"leaf": func(h *hostile) bool {
			parents := h.inner[1]
			for _, a := range parents[1:] {
				if c, d := h.children(a), h.children(parents[0]); len(c) >= 16 && len(d) >= 16 {
					copy(c[8:16], d[8:16])
					return true
				}
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tall(t, true).spoiled(func(h *hostile) { require.True(t, change(h)) })
			mem := s.mem(len(s.file))
			defer mem.Release()
			db, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
			require.NoError(t, err)
			defer func() { db.Close() }()
			require.ErrorIs(t, db.Check(context.Background()), ErrCorrupt)

			rng := rand.New(rand.NewPCG(2, 2))
			for range 4 { // delete all records that a scan shows, until there are no more
				for _, k := range someKeys(db) {
					if err := db.Delete(k); err != nil {
						require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFailed), err)
						return // refused: nothing more is written
					}
				}
				written := map[string][]byte{}
				for n := range 100 {
					k, v := string(rune('~'))+s.load.key(n), randomBytes(rng, 3000+rng.IntN(3000))
					if err := db.Put([]byte(k), v); err != nil {
						require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFailed), err)
						return
					}
					written[k] = v
				}
				for range 3 {
					if err := db.Checkpoint(); err != nil {
						require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFailed), err)
						return
					}
				}
				for k, want := range written {
					v, err := db.Get([]byte(k))
					require.NoError(t, err)
					require.Equal(t, want, v)
				}
			}
		})
	}
}

// someKeys returns every other key that a scan shows.
func someKeys(db *DB) (keys [][]byte) {
	db.View(func(tx *Tx) error {
		n := 0
		for k := range tx.All() {
			if n++; n%2 == 0 && k[0] != '~' {
				keys = append(keys, append([]byte{}, k...))
			}
		}
		return nil
	})
	return keys
}

// TestHostileOpenPages: pages of groups of several pages say that they are open, which only the single page of a
// group may be, and one of them is followed by a hole. A reader beside a writer must not check for ever whether
// such a page is written again.
func TestHostileOpenPages(t *testing.T) {
	inTurn(t)
	const flagOpen = 2
	s := tall(t, false).spoiled(func(h *hostile) {
		for _, a := range h.kinds[logstore.KindRecord] {
			h.page(a)[muxFlags] |= flagOpen
		}
	})
	chain := newSealer(s.file, int(s.load.segmentPages)).chain
	refused := 0
	for _, a := range chain {
		holed := &specimen{name: s.name, load: s.load, file: slices.Clone(s.file)}
		holed.file[a*logstore.PageSize+logstore.MuxSize] ^= 1
		mem := holed.mem(len(holed.file))
		ended := make(chan error, 1)
		go func() {
			db, err := openBeside(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
			if err == nil {
				err = db.Close()
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				refused++
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("an open beside does not end, where page %d is damaged", a)
		}
		mem.Release()
	}
	require.NotZero(t, refused)
}
