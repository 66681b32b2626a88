package mvcc

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/overlay"
	"flashdbm/internal/writeset"
	"flashdbm/lockfree"
)

// between is a watermark of an engine that calls do before each read of it, so that a test can insert steps between
// those of a reader.
type between struct {
	at *atomic.Uint64
	do func()
}

func (b *between) Load() uint64 {
	b.do()
	return b.at.Load()
}

// TestRegisterTakesOneView: a reader is registered at the tree that it reads, and has the memtables of all commits up
// to its Seq, even if views are published and commits come between any two of its steps.
func TestRegisterTakesOneView(t *testing.T) {
	for name, step := range map[string]func(e *Engine, insert func()){
		"another tree": func(e *Engine, insert func()) {
			e.tree.merged(e.marks.applied.Load(), e.marks.applied.Load(), e.tree.records)
		},
		"another table": func(e *Engine, insert func()) {
			e.tree.tables.active = overlay.NewMemtable()
			e.tree.publishView(e.readers.views.Load(), e.readers.views.Load())
			insert()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{Durability: Buffered, Manual: true})
			put(t, e, "k", "v")
			release := e.HoldToken()
			last, tables := e.marks.applied.Load(), e.tree.tables.active
			steps := 0
			slot, s := e.readers.register(lockfree.Slot{}, &between{&e.marks.applied, func() {
				if steps++; steps > 3 {
					return
				}
				step(e, func() {
					op := btree.Op{Key: []byte("later"), Value: []byte("v")}
					e.tree.tables.active.Insert(&op, writeset.HashKey(op.Key), e.marks.applied.Load()+1)
					e.tree.tables.active.Show()
					e.marks.applied.Add(1)
				})
			}})
			require.Equal(t, slot.Seq(), s.view.Tree)
			require.Greater(t, steps, 3)
			if s.at > last {
				_, ok, err := s.find([]byte("later"))
				require.NoError(t, err)
				require.True(t, ok, "it reads at %d", s.at)
			}
			slot.Release()
			e.marks.applied.Store(last)
			e.tree.tables.active = tables
			e.readers.views.newest.Store(&overlay.View{Tree: e.pages.Seq(), Base: e.pages.Seq(), Records: e.tree.records, Tables: e.tree.tables.list()})
			release()
		})
	}
}
