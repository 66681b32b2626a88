package dbm

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkedRecords are records of all kinds: short ones, values that stay in the log, values in runs and in extents,
// and long keys.
func checkedRecords() map[string][]byte {
	records := map[string][]byte{}
	for i := range 6000 {
		size := 60
		switch {
		case i%1000 == 7:
			size = 1<<20 + 4000
		case i%97 == 5:
			size = 9000
		case i%11 == 3:
			size = 700
		}
		key := fmt.Sprintf("%05d", i*7919%6000)
		if i%301 == 9 {
			key += strings.Repeat("k", 1200)
		}
		records[key] = bytes.Repeat([]byte{byte(i), byte(i >> 8), 'v', 'w'}, size/4)
	}
	return records
}

// TestCheckAll damages many pages of a file and compares the result of CheckAll with what can be read, which must
// be exactly the keys outside the reported damage. CheckAll continues to the end and does not change the file.
func TestCheckAll(t *testing.T) {
	inTurn(t)
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	records := checkedRecords()
	require.NoError(t, db.Update(func(tx *Tx) error {
		for k, v := range records {
			if err := tx.Put([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	covered, several := 0, 0
	for seed := range uint64(8) {
		bad := bytes.Clone(whole)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 1 + 6*seed {
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		}
		require.NoError(t, os.WriteFile(path, bad, 0o600))
		db, err := openUnsynced(path, &Options{ReadOnly: true})
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			continue
		}
		var found []Damage
		pages := map[uint64]bool{}
		require.NoError(t, db.CheckAll(t.Context(), func(d Damage) {
			require.ErrorIs(t, d.Err, ErrCorrupt)
			require.NotZero(t, d.Page, "%v", d.Err)
			pages[d.Page] = true
			found = append(found, d)
		}))
		for k, want := range records {
			value, err := db.Get([]byte(k))
			if damaged := covers(found, []byte(k)); damaged != (err != nil) {
				t.Fatalf("seed %d: %.20q: covered by the damage reported: %v; reading it: %v", seed, k, damaged, err)
			}
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				covered++
				continue
			}
			require.Equal(t, want, value)
		}
		if len(pages) > 1 {
			several++
		}
		if len(found) > 0 {
			require.ErrorIs(t, db.Check(t.Context()), ErrCorrupt)
		} else {
			require.NoError(t, db.Check(t.Context()))
		}
		stopped, stop := context.WithCancel(t.Context())
		n := 0
		if len(found) > 1 {
			require.ErrorIs(t, db.CheckAll(stopped, func(Damage) { n++; stop() }), context.Canceled)
			require.Equal(t, 1, n)
		}
		stop()
		require.NoError(t, db.Close())
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(bad, after), "a check changed the file")
	}
	require.NotZero(t, covered)
	require.Greater(t, several, 3, "files with several damaged pages")
}

// covers reports whether one of the damaged ranges contains the key.
func covers(found []Damage, key []byte) bool {
	for _, d := range found {
		switch d.Scope {
		case DamagedKeys:
			if bytes.Compare(d.From, key) <= 0 && (len(d.To) == 0 || bytes.Compare(key, d.To) < 0) {
				return true
			}
		case DamagedRecord:
			if bytes.Equal(key, d.From) || len(d.From) == 1000 && bytes.HasPrefix(key, d.From) {
				return true
			}
		}
	}
	return false
}
