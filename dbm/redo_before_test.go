package dbm

import (
	"encoding/binary"
	"testing"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// The first flush whose redo may start before a base sets a flag in each superblock from the checkpoint before it
// on, so that an older program refuses the file. A file without such a flush is equal, byte for byte, to one
// written by an older program.
func TestRedoBeforeIsStated(t *testing.T) {
	inTurn(t)
	for _, parts := range []bool{false, true} {
		mem := vfs.NewMem(0)
		defer mem.Release()
		o := (&Options{Durability: WriteThrough}).engine()
		o.Manual, o.RedoLimit, o.LastSlots = true, 64<<10, 1<<8
		o.Store.SegmentPages, o.Store.ChunkPages = 16, 1<<10
		flags := func() (both uint64) { // flags of this feature
			for slot := range int64(2) {
				both |= binary.LittleEndian.Uint64(content(mem, slot*logstore.PageSize+24, 8))
			}
			return both & 1
		}
		db, err := openEngine(mem, crashPath, o)
		require.NoError(t, err)
		put := func(db *DB, from, n, step int) {
			require.NoError(t, db.Update(func(tx *Tx) error {
				for i := range n {
					if err := tx.Put(binary.BigEndian.AppendUint32(nil, uint32((from+i*step)%400)), make([]byte, 500)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		put(db, 0, 400, 1)
		require.NoError(t, db.Checkpoint())
		require.NoError(t, db.Close())
		require.Zero(t, flags())

		if parts {
			o.PartBytes = 8 << 10
		}
		db, err = openEngine(mem, crashPath, o)
		require.NoError(t, err)
		left := func() uint64 {
			s, err := db.engine.Stats()
			require.NoError(t, err)
			return s.Pages.Parts
		}
		for i := 0; i < 200 && left() == 0; i++ {
			require.Zero(t, left())
			put(db, i, 24, 17)
			require.NoError(t, db.engine.Housekeep())
		}
		require.Equal(t, parts, left() > 0)
		require.Equal(t, parts, flags() == 1)
		image := mem.Crash(vfs.KeepAll, 1)
		defer image.Release()
		require.NoError(t, db.Close())

		db, err = openEngine(image, crashPath, o)
		require.NoError(t, err)
		s, err := db.engine.Stats()
		require.NoError(t, err)
		require.Equal(t, parts, s.Recovery.RedoBefore)
		require.NoError(t, db.Check(t.Context()))
		require.EqualValues(t, 400, db.Stats().Records)
		require.NoError(t, db.Close())
	}
}
