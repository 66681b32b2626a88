package space

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/format"
)

// TestLoggedModel compares the map of the file with one that knows only the spans: values are born, die, and
// are recorded again in any order that recovery may have, beside pages of the tree, and across checkpoints.
func TestLoggedModel(t *testing.T) {
	type span struct {
		pages int
		born  uint16 // values that were ever born in the page
		live  uint16
	}
	const segments, pages = 4, 32
	lives := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		sp := New(pages, 0, nil)
		sp.pages = segments * pages
		sp.extendTo(segments)
		for n := range sp.segments {
			sp.segments[n].state, sp.segments[n].birth = segmentUsed, unborn
		}
		spans, nodes := map[Addr]*span{}, map[Addr]bool{}
		used := map[Addr]bool{} // in the present life of the segment, in which each page is written once
		write := func(a Addr, n int) bool {
			for i := range Addr(n) {
				if used[a+i] || (a+i)/pages != a/pages {
					return false
				}
			}
			for i := range Addr(n) {
				used[a+i] = true
			}
			return true
		}
		some := func() Addr { return 4 + rng.Uint64N(segments*pages-4) }
		for seq := uint64(1); seq < 2000; seq++ {
			a := some()
			x := spans[a]
			switch k := rng.IntN(10); {
			case k < 4 && x == nil:
				n := 1 + rng.IntN(format.MaxSpan)
				if !write(a, n) {
					continue
				}
				mask := uint16(1)<<(1+rng.IntN(format.MaxLogged)) - 1
				spans[a] = &span{n, mask, mask}
				sp.BearLogged(a, n, mask, rng.IntN(2)*rng.IntN(20000), seq)
			case k < 6 && x != nil && x.live == x.born: // recorded again, as by a second scan of the log
				sp.BearLogged(a, x.pages, x.born, 0, seq)
			case k == 6 && write(a, 1):
				sp.MarkNode(a, seq)
				nodes[a] = true
			case k == 7 && nodes[a]:
				sp.KillNode(a, seq)
				delete(nodes, a)
			case k == 8 && seq%50 == 0: // a checkpoint, and recovery from it
				read := New(pages, 0, nil)
				read.pages = sp.pages
				require.NoError(t, read.Decode(sp.Encode(nil)))
				sp = read
			default:
				for b, y := range spans {
					died := uint16(rng.Uint32()) & uint16(rng.Uint32())
					for range 1 + rng.IntN(2) {
						sp.KillLogged(b, died, seq)
					}
					if y.live &^= died; y.live == 0 {
						delete(spans, b)
					}
					break
				}
			}
			require.NoError(t, sp.checkCounts(), "seed %d", seed)
			if n := uint32(a / pages); sp.segments[n].live == 0 {
				sp.Reborn(n)
				lives++
				for o := range Addr(pages) {
					delete(used, Addr(n)*pages+o)
				}
			}
		}
		want := map[Addr]bool{}
		for a := range nodes {
			want[a] = true
		}
		for a, x := range spans {
			for i := range Addr(x.pages) {
				want[a+i] = true
				require.Equal(t, i > 0, sp.segments[a/pages].logged.isRaw((a+i)%pages), "seed %d", seed)
			}
		}
		found := 0
		for n := range uint32(segments) {
			at, masks := sp.LoggedIn(n)
			for i, a := range at {
				require.NotNil(t, spans[a], "seed %d", seed)
				require.Equal(t, spans[a].live, masks[i], "seed %d", seed)
			}
			found += len(at)
		}
		require.Len(t, spans, found, "seed %d", seed)
		for a := range Addr(segments * pages) {
			require.Equal(t, want[a], sp.IsLive(a), "seed %d, page %d", seed, a)
		}
		require.LessOrEqual(t, sp.packedPages, sp.livePages)
	}
	require.Greater(t, lives, 100)
}
