package main

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// A draw chooses records.
type draw interface {
	next(r *rand.Rand) int
	name() string
}

type uniform struct{ n int }

func (u uniform) next(r *rand.Rand) int { return r.IntN(u.n) }
func (u uniform) name() string          { return "uniform" }

// A zipfian draws the record of rank i with a probability in proportion to 1/i^0.99, as YCSB and go-ycsb do, by the method of Gray and others
// (Quickly Generating Billion-Record Synthetic Databases). Ranks are scattered over the records by a hash, as in YCSB's scrambled zipfian.
type zipfian struct {
	n                       int
	zeta, zeta2, alpha, eta float64
}

const theta = 0.99

func newZipfian(n int) *zipfian {
	z := &zipfian{n: n, alpha: 1 / (1 - theta)}
	for i := 1; i <= n; i++ {
		z.zeta += 1 / math.Pow(float64(i), theta)
	}
	z.zeta2 = 1 + 1/math.Pow(2, theta)
	z.eta = (1 - math.Pow(2/float64(n), 1-theta)) / (1 - z.zeta2/z.zeta)
	return z
}

func (z *zipfian) name() string { return fmt.Sprintf("zipfian %.2f", theta) }

// rank returns a rank, from 0.
func (z *zipfian) rank(r *rand.Rand) int {
	u := r.Float64()
	switch uz := u * z.zeta; {
	case uz < 1:
		return 0
	case uz < z.zeta2:
		return 1
	}
	return min(z.n-1, int(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)))
}

func (z *zipfian) next(r *rand.Rand) int {
	h := uint64(z.rank(r)) + 0x9E3779B97F4A7C15
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return int((h ^ h>>31) % uint64(z.n))
}
