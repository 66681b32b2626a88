package main

import (
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

// A zipfian draws rank i, from 0, of n ranks with a probability in proportion to 1/(i+1)^0.99, as YCSB and go-ycsb
// do, by the method of Gray and others (Quickly Generating Billion-Record Synthetic Databases). The method is exact
// for the first two ranks and approximate for the others.
type zipfian struct {
	n                       float64
	zeta, zeta2, alpha, eta float64
}

const theta = 0.99

func newZipfian(n int, zeta float64) *zipfian {
	z := &zipfian{n: float64(n), alpha: 1 / (1 - theta), zeta: zeta, zeta2: 1 + 1/math.Pow(2, theta)}
	z.eta = (1 - math.Pow(2/z.n, 1-theta)) / (1 - z.zeta2/z.zeta)
	return z
}

// zetaOf returns the sum of 1/i^theta up to n.
func zetaOf(n int) (zeta float64) {
	for i := 1; i <= n; i++ {
		zeta += 1 / math.Pow(float64(i), theta)
	}
	return zeta
}

func (z *zipfian) rank(r *rand.Rand) uint64 {
	u := r.Float64()
	switch uz := u * z.zeta; {
	case uz < 1:
		return 0
	case uz < z.zeta2:
		return 1
	}
	return uint64(z.n * math.Pow(z.eta*u-z.eta+1, z.alpha))
}

// A scrambled zipfian is the distribution that YCSB and go-ycsb use for a workload called zipfian: for any number
// of records it draws a rank among ten thousand million items, which a hash maps to a record. So the hottest of
// 1,000 records has 4 % of the draws, not the 13 % of a zipfian distribution over the records.
type scrambled struct {
	records uint64
	z       *zipfian
}

// The items of a scrambled zipfian, as in YCSB.
const (
	scrambledItems = 10_000_000_001
	scrambledZeta  = 26.46902820178302
)

func newScrambled(records int) *scrambled {
	return &scrambled{uint64(records), newZipfian(scrambledItems, scrambledZeta)}
}

func (s *scrambled) name() string { return "zipfian" }

func (s *scrambled) next(r *rand.Rand) int { return int(fnv(s.z.rank(r)) % s.records) }

// fnv is FNV-1a of the eight bytes, the highest first, without its sign bit, as in go-ycsb.
func fnv(v uint64) uint64 {
	h := uint64(0xCBF29CE484222325)
	for shift := 56; shift >= 0; shift -= 8 {
		h = (h ^ v>>shift&0xFF) * 1099511628211
	}
	if int64(h) < 0 {
		h = -h
	}
	return h
}
