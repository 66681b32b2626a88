package vfs

import (
	"fmt"
	"math/rand/v2"
)

// Policy says which of the unsynced changes a power cut leaves on disk. Changes are ordered by the order of the
// calls, and within a call by sector.
type Policy uint8

const (
	KeepNone          Policy = iota // nothing; unsynced names vanish
	KeepAll                         // everything
	KeepPrefix                      // all up to some point, which may be in the middle of a call
	KeepSuffix                      // all from some point on, as if written in reverse
	KeepRandomPages                 // each 4,096-byte page as it was at some time of its own
	KeepRandomSectors               // each sector as it was at some time of its own
	KeepAllButOne                   // all but one sector, page, size or name
	KeepLastPage                    // only the page that was changed last, with all sizes and names
	numPolicies
)

var policyNames = [numPolicies]string{
	"none", "all", "prefix", "suffix", "random pages", "random sectors", "all but one", "last page",
}

// Policies returns every policy.
func Policies() []Policy {
	all := make([]Policy, numPolicies)
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

func (p Policy) String() string {
	if p < numPolicies {
		return policyNames[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Crash returns what is on disk after a power cut now: what is durable (see [Mem]), and those later changes
// that the policy keeps; where the policy leaves a choice, the seed decides. Everything in the image is
// durable, its names too. Every sector holds one of the contents that it had since it was last durable. The
// file ends where it ended at some time since then, and what lies beyond that end is gone; space that was
// reserved since may be gone too. The same seed gives the same image. Without unsynced changes all images equal
// Clone.
//
// To model kill -9 followed by a power cut, call Crash on the result of Clone. The caller releases the image.
func (m *Mem) Crash(p Policy, seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.image(m.plan(p, rand.New(rand.NewPCG(seed, uint64(p)))))
}

// keep decides which of the unsynced changes an image has. A sector, a size and a name each show their newest
// change that is kept, or otherwise their last durable state. The functions are called with the newest change
// first, and not again once a change is kept.
type keep struct {
	sector func(*inode, change) bool
	size   func(*inode, sizeChange) bool
	link   func(linkChange) bool
	alloc  func(*inode) bool // true: space as reserved and freed now; false: as last synced
}

// bySeq keeps all changes that ok accepts.
func bySeq(ok func(seq uint64) bool, alloc bool) keep {
	return keep{
		sector: func(_ *inode, c change) bool { return ok(c.seq) },
		size:   func(_ *inode, c sizeChange) bool { return ok(c.seq) },
		link:   func(c linkChange) bool { return ok(c.seq) },
		alloc:  func(*inode) bool { return alloc },
	}
}

func (m *Mem) plan(p Policy, rng *rand.Rand) keep {
	coin := func() bool { return rng.IntN(2) == 0 }
	switch p {
	case KeepNone:
		return bySeq(func(uint64) bool { return false }, false)
	case KeepAll:
		return bySeq(func(uint64) bool { return true }, true)
	case KeepPrefix:
		end := m.someSeq(rng)
		return bySeq(func(seq uint64) bool { return seq < end }, coin())
	case KeepSuffix:
		from := m.someSeq(rng)
		return bySeq(func(seq uint64) bool { return seq >= from }, coin())
	case KeepRandomPages:
		k := m.randomly(rng)
		k.sector = m.randomPages(rng)
		return k
	case KeepRandomSectors:
		return m.randomly(rng)
	case KeepAllButOne:
		units := m.units(sectorUnits)
		if coin() {
			units = m.units(pageUnits)
		}
		if len(units) == 0 {
			return bySeq(func(uint64) bool { return true }, true)
		}
		lost := units[rng.IntN(len(units))]
		return byUnit(func(ino *inode, seq uint64, size bool) bool { return !lost.has(ino, seq, size) })
	case KeepLastPage:
		return m.lastPage()
	}
	panic("vfs: unknown crash policy " + p.String())
}

// someSeq returns the number of a random unsynced change, or a number above all.
func (m *Mem) someSeq(rng *rand.Rand) uint64 {
	var seqs []uint64
	for _, ino := range m.inodes {
		for _, c := range ino.history.entries {
			seqs = append(seqs, c.seq)
		}
		for _, c := range ino.history.sizes {
			seqs = append(seqs, c.seq)
		}
	}
	for _, c := range m.linkLog {
		seqs = append(seqs, c.seq)
	}
	if n := rng.IntN(len(seqs) + 1); n < len(seqs) {
		return seqs[n]
	}
	return m.seq + 1
}

// randomly makes each sector, size and name go back in time by a random number of changes.
func (m *Mem) randomly(rng *rand.Rand) keep {
	return keep{
		sector: func(*inode, change) bool { return rng.IntN(2) == 0 },
		size:   m.randomSize(rng),
		link:   func(linkChange) bool { return rng.IntN(4) != 0 },
		alloc:  func(*inode) bool { return rng.IntN(2) == 0 },
	}
}

// randomSize picks any of a file's sizes. The newest and the durable one are picked more often than the others,
// because a large write passes through many sizes.
func (m *Mem) randomSize(rng *rand.Rand) func(*inode, sizeChange) bool {
	until := make(map[*inode]uint64)
	return func(ino *inode, c sizeChange) bool {
		end, ok := until[ino]
		if !ok {
			sizes := ino.history.sizes
			switch rng.IntN(3) {
			case 0:
				end = 0
			case 1:
				end = sizes[len(sizes)-1].seq
			case 2:
				end = sizes[rng.IntN(len(sizes))].seq
			}
			until[ino] = end
		}
		return c.seq <= end
	}
}

// randomPages makes each page show its state before or after one of the calls that changed it.
func (m *Mem) randomPages(rng *rand.Rand) func(*inode, change) bool {
	type page struct {
		ino *inode
		n   int64
	}
	ends := make(map[page][]uint64)
	for _, u := range m.units(pageUnits) {
		if u.ino != nil && !u.size {
			p := page{u.ino, u.sector / sectorsPerBlock}
			ends[p] = append(ends[p], u.last)
		}
	}
	until := make(map[page]uint64)
	return func(ino *inode, c change) bool {
		p := page{ino, c.sector / sectorsPerBlock}
		end, ok := until[p]
		if !ok {
			if n := rng.IntN(len(ends[p]) + 1); n > 0 {
				end = ends[p][n-1]
			}
			until[p] = end
		}
		return c.seq <= end
	}
}

// lastPage keeps only the page that was changed last, and all sizes and names, because without these the page
// might not be visible.
func (m *Mem) lastPage() keep {
	k := bySeq(func(uint64) bool { return true }, true)
	var last change
	var of *inode
	for _, ino := range m.inodes {
		if e := ino.history.entries; len(e) > 0 && e[len(e)-1].seq > last.seq {
			last, of = e[len(e)-1], ino
		}
	}
	k.sector = func(ino *inode, c change) bool {
		return ino == of && c.sector/sectorsPerBlock == last.sector/sectorsPerBlock
	}
	return k
}
