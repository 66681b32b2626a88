package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
)

// compact shrinks a file from which most was deleted, and prints how much it has removed.
func TestCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "worn.fdbm")
	db, err := dbm.Open(path, &dbm.Options{Durability: dbm.Buffered})
	require.NoError(t, err)
	for i := range 200 {
		require.NoError(t, db.Update(func(tx *dbm.Tx) error {
			for j := range 200 {
				if err := tx.Put(fmt.Appendf(nil, "%08d", (i*200+j)*7919%40_000), make([]byte, 200)); err != nil {
					return err
				}
			}
			return nil
		}))
		if i%10 == 9 {
			require.NoError(t, db.Checkpoint()) // the tree receives some transactions at a time, which makes some leaves fuller than others
		}
	}
	require.NoError(t, db.Update(func(tx *dbm.Tx) error {
		for i := range 40_000 {
			if i%3 != 0 {
				if err := tx.Delete(fmt.Appendf(nil, "%08d", i)); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint())
	before := db.Stats()
	require.NoError(t, db.Close())
	var result compactResult
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "compact", path, "--json")), &result))
	require.Less(t, result.Live, before.LiveBytes)
	require.Less(t, result.Live, int64(13_334*(8+200)*115/100), "of what the records take")
	require.LessOrEqual(t, result.After, result.Before)
	require.Regexp(t, `^.*worn\.fdbm: [0-9.]+ MiB before, [0-9.]+ MiB now, of which [0-9.]+ MiB are in use\n$`, succeed(t, "compact", path))
	require.Contains(t, succeed(t, "check", path), "no problems in 13,334 records")
	fail(t, exitError, []string{"there is no database"}, "compact", filepath.Join(t.TempDir(), "missing"))
}
