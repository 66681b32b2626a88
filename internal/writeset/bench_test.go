package writeset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func BenchmarkSetPut(b *testing.B) {
	for _, n := range []int{1, 100, 10_000, 1_000_000} {
		for _, order := range []string{"ascending", "random"} {
			b.Run(fmt.Sprintf("%s/%d", order, n), func(b *testing.B) {
				keys := make([][]byte, n)
				rng := rand.New(rand.NewPCG(1, 1))
				for i, j := range rng.Perm(n) {
					if order == "ascending" {
						j = i
					}
					keys[i] = fmt.Appendf(nil, "user%012d", j)
				}
				value := []byte(strings.Repeat("v", 100))
				var w Set
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					if i%n == 0 {
						w.Reset()
					}
					w.Put(keys[i%n], value)
				}
			})
		}
	}
}

func BenchmarkSetAll(b *testing.B) {
	var w Set
	for i := range 100_000 {
		w.Put(fmt.Appendf(nil, "user%012d", i), make([]byte, 100))
	}
	sum := 0
	for i := 0; i < b.N; {
		for e := range w.All() {
			sum += len(e.Value)
			if i++; i == b.N {
				break
			}
		}
	}
}

func BenchmarkIntersects(b *testing.B) {
	fill := func(n, step, from int) *Set {
		var w Set
		for i := range n {
			w.Put(fmt.Appendf(nil, "user%012d", from+i*step), nil)
		}
		return &w
	}
	for _, c := range []struct {
		name string
		a, b *Set
	}{
		{"1 with 1", fill(1, 1, 0), fill(1, 1, 1)},
		{"10 with 10", fill(10, 2, 0), fill(10, 2, 1)},
		{"1 with 100000", fill(1, 1, 77_777), fill(100_000, 2, 0)},
		{"100000 interleaved", fill(100_000, 2, 0), fill(100_000, 2, 1)},
		{"100000 apart", fill(100_000, 1, 0), fill(100_000, 1, 100_000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if c.a.Intersects(c.b) {
					b.Fatal("no common key")
				}
			}
		})
	}
}
