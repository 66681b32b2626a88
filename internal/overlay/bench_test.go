package overlay

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"flashdbm/internal/btree"
)

// BenchmarkTable orders as many records as a log of 32 MiB may hold, of keys that begin alike and of keys that don't.
func BenchmarkTable(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, key := range map[string]func() []byte{
		"random":  func() []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) },
		"decimal": func() []byte { return fmt.Appendf(nil, "user%020d", rng.IntN(8_000_000)) },
	} {
		ops := make([]btree.Op, 200_000)
		for i := range ops {
			ops[i] = btree.Op{Key: key(), Value: []byte{}}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewTable(ops, 0)
			}
		})
	}
}
