package dbm

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoom: a quarter of Room can be put in one transaction, and a third of it in small ones. Where a put gets
// ErrFull, Room was close to zero.
func TestRoom(t *testing.T) {
	const most = 4 << 20
	value := make([]byte, 100)
	key := func(i int) []byte { // not in ascending order
		return binary.BigEndian.AppendUint64(nil, uint64(i)*0x9E3779B97F4A7C15)
	}
	record := int64(8 + len(value))
	put := func(db *DB, from, to int) error {
		return db.Update(func(tx *Tx) error {
			for i := from; i < to; i++ {
				if err := tx.Put(key(i), value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, share := range []struct{ of, each int }{{4, most}, {3, 20}} {
		db := newWith(t, openUnsynced, &Options{MaxFileSize: most, Durability: Buffered})
		room := db.Room()
		require.Greater(t, room, int64(most/2))
		require.Less(t, room, int64(most))
		n, last := int(room/int64(share.of)/record), int64(0)
		for i := 0; i < n; i += share.each {
			require.NoError(t, put(db, i, min(i+share.each, n)), "record %d of %d", i, n)
		}
		require.NoError(t, db.Checkpoint())
		require.Less(t, db.Room(), room-int64(n)*record/2)
		err := error(nil)
		for i := n; err == nil; i += 20 {
			last = db.Room()
			err = put(db, i, i+20)
		}
		require.ErrorIs(t, err, ErrFull)
		require.Less(t, last, int64(most/8))
	}
}

// TestRoomOfOthers: a handle that cannot write has no room, and without MaxFileSize the device determines how much
// there is.
func TestRoomOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.Positive(t, db.Room())
	require.NoError(t, db.Put([]byte("a"), nil))
	require.NoError(t, db.Close())
	require.Zero(t, db.Room(), "closed")
	for _, opts := range []*Options{{ReadOnly: true}, {Beside: true}} {
		db, err := Open(path, opts)
		require.NoError(t, err)
		require.Zero(t, db.Room())
		require.NoError(t, db.Close())
	}
	db = newDB(t, nil)
	require.ErrorContains(t, db.engine.Fail(errors.New("for a test")), "for a test")
	require.Zero(t, db.Room())
	require.Error(t, db.Close())
}
