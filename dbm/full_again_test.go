package dbm

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fillUp puts records of 300 bytes until one is refused, and returns how many there are.
func fillUp(t *testing.T, db *DB) (n int) {
	for {
		err := db.Put(fmt.Appendf(nil, "%08d", n), make([]byte, 300))
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
			return n
		}
		n++
	}
}

// TestFullRefusesAtOnce: on a full file a put that was refused is refused again without another attempt to make room,
// until something may have made room.
func TestFullRefusesAtOnce(t *testing.T) {
	db := newWith(t, openUnsynced, &Options{MaxFileSize: 2 << 20, Durability: Buffered})
	n := fillUp(t, db)
	attempts, began := 0, time.Now()
	for range 100 {
		before := db.Stats().Checkpoints
		require.ErrorIs(t, db.Put([]byte("new"), make([]byte, 300)), ErrFull)
		if db.Stats().Checkpoints > before {
			attempts++
		}
	}
	require.LessOrEqual(t, attempts, 5+int(time.Since(began)/time.Second), "puts that tried to make room, of 100")

	// Values may be replaced, and records deleted; then there is room.
	require.NoError(t, db.Put([]byte("00000001"), bytes.Repeat([]byte("v"), 300)))
	require.NoError(t, db.DeleteRange(fmt.Appendf(nil, "%08d", n/2), nil))
	require.NoError(t, db.Put([]byte("new"), make([]byte, 300)))
	require.NoError(t, db.Check(t.Context()))
}
