package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const drawn = 1000

// readGoYCSB returns how often go-ycsb has drawn each record.
func readGoYCSB(t *testing.T) (zipfian, scrambled [drawn]float64) {
	f, err := os.Open("testdata/go-ycsb.txt")
	require.NoError(t, err)
	defer f.Close()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var at int
		_, err := fmt.Sscan(lines.Text(), &at, &zipfian[n], &scrambled[n])
		require.NoError(t, err)
		require.Equal(t, n, at)
		n++
	}
	require.Equal(t, drawn, n)
	return zipfian, scrambled
}

// chiSquare compares two sets of draws. If both have one distribution, the result is about the number of records,
// with a standard deviation of the square root of twice that number.
func chiSquare(a, b *[drawn]float64) (x float64) {
	var na, nb float64
	for i := range a {
		na, nb = na+a[i], nb+b[i]
	}
	for i := range a {
		if sum := a[i] + b[i]; sum > 0 {
			for _, s := range [][2]float64{{a[i], na}, {b[i], nb}} {
				want := sum * s[1] / (na + nb)
				x += (s[0] - want) * (s[0] - want) / want
			}
		}
	}
	return x
}

// chiLimit is ten standard deviations above the mean for draws of one distribution.
const chiLimit = drawn + 450

// TestDrawsLikeGoYCSB: the draws of the benchmark have the distribution of go-ycsb's draws, record by record.
func TestDrawsLikeGoYCSB(t *testing.T) {
	zipfian, scrambled := readGoYCSB(t)
	r := rand.New(rand.NewPCG(1, 2))
	var ours, ranks [drawn]float64
	s, z := newScrambled(drawn), newZipfian(drawn, zetaOf(drawn))
	for range 3_000_000 {
		ours[s.next(r)]++
		ranks[z.rank(r)]++
	}
	require.Less(t, chiSquare(&ours, &scrambled), float64(chiLimit))
	require.Less(t, chiSquare(&ranks, &zipfian), float64(chiLimit))
	require.Greater(t, chiSquare(&ours, &zipfian), float64(10*chiLimit), "the test tells distributions apart")
}
