package mvcc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// If neighbouring leaves are merged, the long key of a record that a commit puts is read. In a page group, that read
// would come before the run of the key is written. So such a commit does not become a page group.
func TestLongKeysInPageGroups(t *testing.T) {
	inTurn(t)
	for seed := range uint64(20) {
		e := newEngine(t, Options{Manual: true})
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			tx := begin(t, e, TxOptions{})
			for range 1 + rng.IntN(16) {
				n := rng.IntN(100)
				key := fmt.Appendf(nil, "%02d", n)
				if n%3 == 0 { // these keys differ only after the prefix that their leaf stores
					key = append(bytes.Repeat([]byte("long"), 300), key...)
				}
				if rng.IntN(2) == 0 {
					require.NoError(t, tx.Delete(key))
				} else {
					require.NoError(t, tx.Put(key, make([]byte, rng.IntN(600))))
				}
			}
			require.NoError(t, tx.Commit())
			if rng.IntN(20) == 0 {
				require.NoError(t, e.Checkpoint())
			}
		}
		require.Positive(t, e.store.Counters().PageGroups)
	}
}
