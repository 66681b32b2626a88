package dbm

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/pagefile"
	"flashdbm/internal/salvage"
)

// TestFollowedOnce: all inner nodes of a file name a single child each. CheckAll and Salvage follow each name once
// and report where another reference leads to the same page. Following all of them would take as long as there are
// paths through the tree.
func TestFollowedOnce(t *testing.T) {
	inTurn(t)
	nodes := 0
	s := tall(t, true).spoiled(func(h *hostile) {
		for level, pages := range h.inner {
			for _, a := range pages {
				nodes++
				if level == 0 {
					continue
				}
				c := h.children(a)
				for i := range len(c) / 8 {
					copy(c[8*i:], c[:8])
				}
			}
		}
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	o := s.load.options(rand.New(rand.NewPCG(1, 1)))
	o.Store.ReadOnly = true
	db, err := openEngine(mem, crashPath, o)
	require.NoError(t, err)
	twice, others := 0, 0
	require.NoError(t, db.CheckAll(t.Context(), func(d Damage) {
		require.ErrorIs(t, d.Err, ErrCorrupt)
		if others++; others > nodes*leafRecords {
			t.Fatal("more damage than the file has room for")
		}
		if d.Scope == DamagedKeys && contains(d.Err, "second reference") {
			twice++
		}
	}))
	require.NoError(t, db.Close())
	require.Positive(t, twice)

	f, err := pagefile.Open(t.Context(), mem, crashPath, 0)
	require.NoError(t, err)
	defer f.Close()
	again := 0
	_, err = salvage.Run(context.Background(), f, salvage.Options{Missing: func(m salvage.Missing) {
		if m.Err != nil && contains(m.Err, "second reference") {
			again++
		}
	}})
	require.NoError(t, err)
	require.Positive(t, again)
}

func contains(err error, text string) bool { return bytes.Contains([]byte(err.Error()), []byte(text)) }

// TestSalvageSharedValues: if the references of all records lead to the same value, it is copied for one record
// only, and the others are reported.
func TestSalvageSharedValues(t *testing.T) {
	inTurn(t)
	s := tall(t, true).spoiled(func(h *hostile) { h.sameValues(true) })
	mem := s.mem(len(s.file))
	defer mem.Release()
	require.NoError(t, s.use(mem, rand.New(rand.NewPCG(1, 1)), "salvaged"))
	f, err := pagefile.Open(t.Context(), mem, crashPath, 0)
	require.NoError(t, err)
	defer f.Close()
	again := 0
	_, err = salvage.Run(context.Background(), f, salvage.Options{Missing: func(m salvage.Missing) {
		if m.Err != nil && contains(m.Err, "second reference") {
			again++
		}
	}})
	require.NoError(t, err)
	require.Positive(t, again)
}
