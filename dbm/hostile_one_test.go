package dbm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// spoiled returns a specimen with some changes and right checksums.
func (s *specimen) spoiled(change func(h *hostile)) *specimen {
	h := &hostile{sealer: newSealer(slices.Clone(s.file), int(s.load.segmentPages)), rng: rand.New(rand.NewPCG(1, 1))}
	h.survey()
	change(h)
	h.seal()
	return &specimen{name: s.name, load: s.load, closed: s.closed, file: h.file}
}

// TestHostileGraphs: each inner node has a single child, or all nodes of a level have the same children. Scans and
// background work still end.
func TestHostileGraphs(t *testing.T) {
	inTurn(t)
	for name, change := range map[string]func(h *hostile, a int){
		"one child": func(h *hostile, a int) {
			c := h.children(a)
			for i := range len(c) / 8 {
				copy(c[8*i:], c[:8])
			}
		},
		"twins": func(h *hostile, a int) {
			if c := h.children(a); len(c) > 8 {
				copy(c[8:16], c[:8])
			}
		},
	} {
		for _, closed := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				s := tall(t, closed).spoiled(func(h *hostile) {
					require.NotEmpty(t, h.inner[2])
					for level, pages := range h.inner {
						for _, a := range pages {
							if level > 0 {
								change(h, a)
							}
						}
					}
				})
				mem := s.mem(len(s.file))
				defer mem.Release()
				rng := rand.New(rand.NewPCG(1, 1))
				for range 3 {
					require.NoError(t, s.use(mem, rng, "read-only"))
					require.NoError(t, s.use(mem, rng, "writing"))
				}
			})
		}
	}
}

// TestHostileLeafOrder: each leaf in turn gets the records of the first or last one. Operations that go through
// several leaves end with an error.
func TestHostileLeafOrder(t *testing.T) {
	whole := newSpecimen(t, true, false)
	leaves := 0
	whole.spoiled(func(h *hostile) { leaves = len(h.inner[0]) })
	for from := range leaves {
		for _, to := range []int{0, leaves - 1} {
			s := whole.spoiled(func(h *hostile) {
				copy(h.page(h.inner[0][from])[nodeLevel:], h.page(h.inner[0][to])[nodeLevel:])
			})
			mem := s.mem(len(s.file))
			require.NoError(t, s.use(mem, rand.New(rand.NewPCG(1, uint64(from))), "writing"), "leaf %d has the records of %d", from, to)
			mem.Release()
		}
	}
}

// TestHostileBackward: the children of an inner node are shifted by one against its separators. A backward scan
// from a key shows no greater key.
func TestHostileBackward(t *testing.T) {
	s := tall(t, true).spoiled(func(h *hostile) {
		for _, a := range h.inner[1] {
			if c := h.children(a); len(c) > 4*8 {
				copy(c[8:], c[16:])
			}
		}
	})
	mem := s.mem(len(s.file))
	defer mem.Release()
	db, err := openEngine(mem, crashPath, s.load.options(rand.New(rand.NewPCG(1, 1))))
	require.NoError(t, err)
	defer db.Close()
	refused := 0
	for n := range s.load.keys {
		key := []byte(s.load.key(n))
		err := db.View(func(tx *Tx) error {
			for k := range tx.Backward(nil, key) {
				require.Less(t, string(k), string(key))
				break
			}
			return tx.Err()
		})
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			refused++
		}
	}
	require.NotZero(t, refused)
}
