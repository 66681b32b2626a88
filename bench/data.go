package main

import (
	"encoding/binary"
	"math"
)

// Records are made from their number and a version, so that what a store returns can be checked without a copy of it.

// A shape says how long keys and values are and in which order numbers become keys.
type shape struct {
	keyLen, valueLen int
	ascending        bool // key = number; else scattered, in no order
}

var (
	paperShape = shape{4, 8, true}
	smallShape = shape{16, 100, false}
	largeShape = shape{16, 1000, false}
)

// appendKey appends the key of record number i.
func (s shape) appendKey(b []byte, i int) []byte {
	if s.keyLen == 4 {
		return binary.BigEndian.AppendUint32(b, uint32(i))
	}
	if s.ascending {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, 0), uint64(i))
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, mix(uint64(i))), uint64(i))
}

// appendValue appends the value of record i in a version: the version, then bytes that no store can compress.
func (s shape) appendValue(b []byte, i int, version uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, version)
	x := mix(uint64(i)<<1 ^ version*0x9e3779b97f4a7c15)
	for n := s.valueLen - 8; n > 0; n -= 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if n >= 8 {
			b = binary.LittleEndian.AppendUint64(b, x)
			continue
		}
		for ; n > 0; n-- {
			b = append(b, byte(x))
			x >>= 8
		}
	}
	return b
}

// mix scatters numbers; no two have the same result.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// random is a small generator, the same in every run of a seed.
type random struct{ state uint64 }

func newRandom(seed uint64) *random { return &random{seed} }

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return mix(r.state)
}

// below returns a number in [0, n).
func (r *random) below(n int) int { return int((r.next() >> 32) * uint64(n) >> 32) }

func (r *random) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// zipfian draws numbers in [0, n) with the skew theta, as YCSB's ScrambledZipfianGenerator does (Gray et al., 1994): the popular ones are
// scattered over the whole range.
type zipfian struct {
	n                              int
	theta, alpha, zetan, eta, half float64
	scrambled                      bool
}

func newZipfian(n int, theta float64, scrambled bool) *zipfian {
	zeta := func(n int) (sum float64) {
		for i := 1; i <= n; i++ {
			sum += 1 / math.Pow(float64(i), theta)
		}
		return sum
	}
	z := &zipfian{n: n, theta: theta, alpha: 1 / (1 - theta), zetan: zeta(n), half: math.Pow(0.5, theta), scrambled: scrambled}
	z.eta = (1 - math.Pow(2/float64(n), 1-theta)) / (1 - zeta(2)/z.zetan)
	return z
}

func (z *zipfian) draw(r *random) int {
	u := r.float()
	uz := u * z.zetan
	rank := 0
	switch {
	case uz < 1:
	case uz < 1+z.half:
		rank = 1
	default:
		rank = min(int(float64(z.n)*math.Pow(z.eta*u-z.eta+1, z.alpha)), z.n-1)
	}
	if !z.scrambled {
		return rank
	}
	return int(mix(uint64(rank)+77) % uint64(z.n))
}
