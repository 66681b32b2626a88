package dbm

import (
	"bytes"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestLongKeysInSmallFile: the segments of files with small limits may be too small for long keys. Then all ways to
// put such a key refuse it with the same error, and the database stays usable. All of them accept a key that is a
// little shorter.
func TestLongKeysInSmallFile(t *testing.T) {
	value := bytes.Repeat([]byte("v"), 5000)
	for _, c := range []struct {
		limit         int64
		taken, refuse int // lengths of keys that are accepted and refused
	}{{MinMaxFileSize, 20_300, 20_420}, {8 << 20, 53_000, 53_200}, {12 << 20, 65_500, 0}} {
		for _, length := range []int{c.taken, c.refuse} {
			long := bytes.Repeat([]byte("k"), length)
			records := func(n int) iter.Seq2[[]byte, []byte] {
				return func(yield func(k, v []byte) bool) {
					for i := range n {
						if !yield(fmt.Appendf(nil, "%06d", i), value[:100]) {
							return
						}
					}
					yield(long, value)
				}
			}
			for name, put := range map[string]func(db *DB) error{
				"put":           func(db *DB) error { return db.Put(long, value) },
				"put that ends": func(db *DB) error { return db.PutTTL(long, value, time.Hour) },
				"load":          func(db *DB) error { return db.Load(t.Context(), records(10), LoadOptions{Sorted: true}) },
				"unsorted load": func(db *DB) error { return db.Load(t.Context(), records(10), LoadOptions{}) },
				"load by rows": func(db *DB) error {
					return db.Keyspace("a").Load(t.Context(), records(12_000), LoadOptions{Sorted: true, Replace: true})
				},
			} {
				if length == 0 || name == "load by rows" && c.limit == MinMaxFileSize { // there is no room for a megabyte
					continue
				}
				what := fmt.Sprint(name, " of ", length, " bytes, limit ", c.limit)
				db := newDB(t, &Options{MaxFileSize: c.limit, Durability: Buffered})
				if name != "load" {
					require.NoError(t, db.EnableKeyspaces(), what)
				}
				err := put(db)
				if length == c.taken {
					require.NoError(t, err, what)
				} else {
					require.ErrorIs(t, err, logstore.ErrSmallSegments, what)
				}
				require.NoError(t, db.Put([]byte("after"), nil), what)
				require.NoError(t, db.Check(t.Context()), what)
			}
		}
	}
}
