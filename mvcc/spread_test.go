package mvcc

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/logstore"
)

// TestRefusedPutsLeaveTheTree: once a round has filled up the leaves of a full file, puts that are refused change no
// more leaves.
func TestRefusedPutsLeaveTheTree(t *testing.T) {
	e := newEngine(t, Options{Durability: Buffered, Store: logstore.Options{SegmentPages: 16, MaxFileSize: 2 << 20}})
	value := make([]byte, 100)
	refused := 0
	for i := uint64(0); refused < 8; i++ {
		var key [8]byte
		binary.BigEndian.PutUint64(key[:], i*0x9E3779B97F4A7C15)
		if err := e.WriteOne(key[:], value, false); err != nil {
			require.True(t, logstore.IsFull(err), "%v", err)
			refused++
		}
	}
	var round btree.Repacked
	all, err := e.admission.spreadOnce(&round)
	require.NoError(t, err)
	require.True(t, all)
	require.Zero(t, round.Leaves)
}
