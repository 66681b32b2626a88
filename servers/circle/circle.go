// Package circle determines the shard of a key by consistent hashing: each shard has points on the circle of all
// hashes, and owns the hashes between each of its points and the point before it. When a shard is added or removed,
// only its own part of the keys moves.
package circle

import (
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// Points is the number of points of a shard. More: more even shares; with 128, the largest of eight shards has about
// a fifth more than an eighth.
const Points = 128

// Hash returns the place of a key on the circle. The seed is the cluster's, chosen at random, so an attacker cannot
// construct keys with equal hashes.
func Hash(seed uint64, key []byte) uint64 {
	if c, ok := ParseChunk(key); ok {
		return xxh3.HashSeed(c.Key, seed) + 1 + uint64(c.Index)
	}
	return xxh3.HashSeed(key, seed)
}

// A Circle is a set of shards. It is immutable, so any goroutine may use it.
type Circle struct {
	points []point
	// starts has, for each value of the top bits of hashes, the number of points below all of these hashes.
	starts [1<<startBits + 1]int32
}

// startBits: with 1,024 parts of the circle and some hundred points, the search ends after a step or two.
const startBits = 10

type point struct {
	hash  uint64
	shard uint32
}

// New returns the circle of the shards, each listed once, in any order.
func New(seed uint64, shards []uint32) *Circle {
	points := make([]point, 0, len(shards)*Points)
	for _, s := range shards {
		for i := range uint64(Points) {
			var b [12]byte
			binary.LittleEndian.PutUint32(b[:], s)
			binary.LittleEndian.PutUint64(b[4:], i)
			points = append(points, point{xxh3.HashSeed(b[:], seed), s})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		switch {
		case a.hash != b.hash && a.hash < b.hash, a.hash == b.hash && a.shard < b.shard:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return of(points)
}

// of returns the circle of points in ascending order.
func of(points []point) *Circle {
	c := &Circle{points: points}
	at := 0
	for i := range uint64(1 << startBits) {
		for at < len(points) && points[at].hash < i<<(64-startBits) {
			at++
		}
		c.starts[i] = int32(at)
	}
	c.starts[1<<startBits] = int32(len(points))
	return c
}

// Owner returns the shard of a hash: that of the first point at or above the hash, wrapping around. ok is false if
// the circle has no shards.
func (c *Circle) Owner(hash uint64) (shard uint32, ok bool) {
	if len(c.points) == 0 {
		return 0, false
	}
	part := hash >> (64 - startBits)
	i, end := int(c.starts[part]), int(c.starts[part+1])
	for i < end { // called for each request: slices.BinarySearchFunc takes twice the time
		if mid := int(uint(i+end) >> 1); c.points[mid].hash < hash {
			i = mid + 1
		} else {
			end = mid
		}
	}
	return c.points[i%len(c.points)].shard, true
}

// A Range is a part of the circle, both ends included.
type Range struct{ First, Last uint64 }

// Ranges returns the parts of a shard, in ascending order.
func (c *Circle) Ranges(shard uint32) []Range {
	var rs []Range
	add := func(first, last uint64) {
		if n := len(rs); n > 0 && rs[n-1].Last+1 == first {
			rs[n-1].Last = last
			return
		}
		rs = append(rs, Range{first, last})
	}
	first := uint64(0)
	for _, p := range c.points {
		if p.hash < first { // another point has the same hash
			continue
		}
		if p.shard == shard {
			add(first, p.hash)
		}
		first = p.hash + 1
		if first == 0 {
			return rs
		}
	}
	if len(c.points) > 0 && c.points[0].shard == shard {
		add(first, ^uint64(0))
	}
	return rs
}
