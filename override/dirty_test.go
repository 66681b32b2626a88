package override

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFamily: pages of a split may be left behind with their parent if none of them has to be written and the
// parent is on disk, or will be before the next flush. If one of them has to be written, all have to be.
func TestFamily(t *testing.T) {
	type pages struct{ parent, leaf, sibling entry }
	grow := func(change func(d *dirtyPages, p *pages)) (*dirtyPages, *pages) {
		d, p := newDirtyPages(), &pages{parent: entry{disk: 1}, leaf: entry{disk: 2}}
		if change != nil {
			change(&d, p)
		}
		for _, e := range []*entry{&p.leaf, &p.sibling, &p.parent} {
			d.add(e)
			d.grow(&p.parent, e)
		}
		return &d, p
	}
	must := func(p *pages) (n int) {
		for _, e := range []*entry{&p.leaf, &p.sibling, &p.parent} {
			if e.must {
				n++
			}
			require.NotEqual(t, e.must, e.family != nil)
		}
		return n
	}
	d, p := grow(nil)
	require.Zero(t, must(p))
	require.Equal(t, 3, d.grown)
	for i := range 3 {
		d, p := grow(nil)
		d.oblige([]*entry{&p.leaf, &p.sibling, &p.parent}[i])
		require.Equal(t, 3, must(p), i)
		require.Zero(t, d.grown)
	}
	for name, change := range map[string]func(d *dirtyPages, p *pages){
		"the parent has to be written": func(d *dirtyPages, p *pages) { d.add(&p.parent); d.oblige(&p.parent) },
		"the leaf has to be written":   func(d *dirtyPages, p *pages) { d.add(&p.leaf); d.oblige(&p.leaf) },
		"the parent is not on disk":    func(d *dirtyPages, p *pages) { p.parent.disk, p.parent.id = 0, Root },
	} {
		d, p := grow(change)
		require.Equal(t, 3, must(p), name)
		require.Zero(t, d.grown, name)
	}
	_, p = grow(func(_ *dirtyPages, p *pages) { p.parent.disk, p.parent.id, p.parent.flying = 0, Root, true })
	require.Zero(t, must(p), "a flush writes the parent")
}
