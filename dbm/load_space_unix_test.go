//go:build unix

package dbm

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadIntoNewFile: a load of a new file in random order writes each record only once, as long as the records
// and what a flush would write fit in the limit of the file. The file does not grow ahead for the pages that the
// load makes dirty, which may never be flushed.
func TestLoadIntoNewFile(t *testing.T) {
	if testing.Short() && raceEnabled {
		t.Skip("takes seconds with the race detector")
	}
	const records, size, perTx = 380_000, 116, 1000
	db, err := Open(filepath.Join(t.TempDir(), "db"), &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	order := rand.New(rand.NewPCG(1, 2)).Perm(records)
	value := make([]byte, size-16)
	most := 0.0
	for i := 0; i < records; i += perTx {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for _, k := range order[i : i+perTx] {
				var key [16]byte
				binary.BigEndian.PutUint64(key[:], uint64(k)*0x9E3779B97F4A7C15)
				if err := tx.Put(key[:], value); err != nil {
					return err
				}
			}
			return nil
		}))
		s := db.Stats()
		most = max(most, float64(s.FileBytes)/float64(spaceFactor*(i+perTx)*size+spaceExtra))
	}
	s := db.Stats()
	require.Less(t, s.PagesWritten*4096, s.PutBytes*5/4, "beside the records themselves the log has flushes")
	require.Less(t, most, 1.0, "file, of its bound")
	require.NoError(t, db.Check(t.Context()))
}
