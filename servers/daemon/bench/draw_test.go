package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestZipfian compares what is drawn with the distribution that YCSB's generator, and so go-ycsb's, has: rank i with a probability in proportion to 1/i^0.99. The
// method is exact for the first two ranks, and near for the others.
func TestZipfian(t *testing.T) {
	const n, draws = 1000, 1_000_000
	z := newZipfian(n)
	r := rand.New(rand.NewPCG(1, 2))
	var counts [n]float64
	for range draws {
		counts[z.rank(r)]++
	}
	for rank, most := range map[int]float64{0: 0.01, 1: 0.02} {
		want := 1 / math.Pow(float64(rank+1), theta) / z.zeta
		require.InEpsilon(t, want, counts[rank]/draws, most, "rank %d", rank)
	}
	for _, span := range [][2]int{{2, 10}, {10, 100}, {100, 1000}} {
		want, got := 0.0, 0.0
		for i := span[0]; i < span[1]; i++ {
			want += 1 / math.Pow(float64(i+1), theta) / z.zeta
			got += counts[i] / draws
		}
		require.InEpsilon(t, want, got, 0.1, "ranks %v", span)
	}
	var records [n]int
	for range 100_000 {
		records[z.next(r)]++
	}
	used := 0
	for _, c := range records {
		if c > 0 {
			used++
		}
	}
	require.Greater(t, used, n/2, "ranks are scattered over the records")
}
