package overlay

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"flashdbm/internal/btree"

	"github.com/stretchr/testify/require"
)

// TestTable: a table says of each key what its last op says, and loses the values of the others that are not old.
func TestTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for name, key := range map[string]func() []byte{
		"random":      func() []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) },
		"few":         func() []byte { return fmt.Append(nil, rng.IntN(50)) },
		"alike":       func() []byte { return fmt.Appendf(nil, "they begin alike %d", rng.IntN(5000)) },
		"short":       func() []byte { return make([]byte, rng.IntN(20)) },
		"the same":    func() []byte { return []byte("key") },
		"longer ones": func() []byte { return append([]byte("prefix"), make([]byte, rng.IntN(3))...) },
	} {
		for _, n := range []int{0, 1, 2, 3, 100, 3000} {
			old := rng.IntN(n + 1)
			ops := make([]btree.Op, n)
			last := map[string]int{}
			var lost []btree.Ref
			bytes := 0
			for i := range ops {
				ops[i] = btree.Op{Key: key(), Delete: rng.IntN(4) == 0}
				if !ops[i].Delete && rng.IntN(2) == 0 {
					ops[i].Ref = &btree.Ref{ID: uint64(i + 1)}
				} else if !ops[i].Delete {
					ops[i].Value = make([]byte, rng.IntN(50))
				}
				k := string(ops[i].Key)
				if before, ok := last[k]; ok && ops[before].Ref != nil && before >= old {
					lost = append(lost, *ops[before].Ref)
				}
				last[k] = i
				bytes += len(ops[i].Key) + len(ops[i].Value)
			}
			table := NewTable(ops, old)
			require.Equal(t, n, table.All(), name)
			require.Equal(t, len(last), table.Len(), name)
			require.EqualValues(t, bytes, table.Bytes(), name)
			require.ElementsMatch(t, lost, table.Lost(), name)
			for i, k := range slices.Sorted(maps.Keys(last)) {
				require.Same(t, &ops[last[k]], table.At(i), name)
				require.Same(t, &ops[last[k]], table.Find([]byte(k)), "%s %q", name, k)
			}
			for range 100 {
				k := append(key(), 'x')
				if _, ok := last[string(k)]; !ok {
					require.Nil(t, table.Find(k), name)
				}
			}
			require.Nil(t, table.Find([]byte("absent")), name)
		}
	}
	var none *Table
	require.Nil(t, none.Find(nil))
}
