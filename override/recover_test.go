package override

import (
	"encoding/binary"
	"os"
	"testing"

	"flashdbm/internal/btree"
	"flashdbm/lockfree"
	"flashdbm/logstore"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// hostile is a store on which tables and flushes of arbitrary content are recovered. Its file has a few pages
// of a real database.
type hostile struct {
	mem   *vfs.Mem
	store *logstore.Store
	pages uint64 // of the file
}

func newHostile(t testing.TB) *hostile {
	h := &hostile{mem: vfs.NewMem(1 << 20)}
	s, rec, err := logstore.Open(h.mem, "hostile.db", modelOptions())
	require.NoError(t, err)
	require.NoError(t, s.Reserve(32, true))
	p, err := Create(s, &lockfree.Registry{}, btree.NewMemory(), false)
	require.NoError(t, err)
	require.NoError(t, s.EndRecovery(rec))
	p.detach(p.table.find(Root))
	p.Close()
	h.store, h.pages = s, uint64(s.SpaceStats().FileBytes)/logstore.PageSize
	t.Cleanup(func() {
		s.Close()
		h.mem.Release()
	})
	return h
}

// recover does what Recover does, with one flush of one part after the table. It removes the names that this
// leaves in the store.
func (h *hostile) recover(table []byte, pages []logstore.ScannedPage, stream []byte) (err error) {
	p := newPages(h.store, &lockfree.Registry{}, btree.NewMemory(), 0)
	defer func() {
		p.table.all(func(l *link) { h.store.DropName(l.id) })
	}()
	if err := p.recoverTable(table); err != nil {
		return err
	}
	g := &logstore.ScannedGroup{No: 1 << 40, Kind: logstore.FlushGroup, Pages: pages}
	in := installer{Pages: p, tableBase: p.base, parts: map[uint64][]logstore.ScannedPage{}}
	if _, err := in.wholeFlush(g, stream); err != nil {
		return err
	}
	return p.checkNames(0, 0)
}

func treePage(id logstore.PageID, a logstore.Addr) logstore.ScannedPage {
	return logstore.ScannedPage{Addr: a, Kind: logstore.KindTree, Name: id}
}

// A table or a flush with correct checksums and wrong content is an error.
func TestRecoverHostile(t *testing.T) {
	h := newHostile(t)
	born := logstore.BornBit | 5
	table := tableBytes(2, 6, 3, Root, 4, 9, 10, born, 11)
	end := flushEnd{base: 5, redo: 5, first: 6, born: 6}
	require.NoError(t, h.recover(table, nil, putFlushEnd(end)))
	require.NoError(t, h.recover(table, []logstore.ScannedPage{treePage(born, 12), treePage(13, 14)}, putFlushEnd(flushEnd{
		base: 5, redo: 5, first: 6, born: 7, retired: []retiredName{{9, 10}}, removed: []logstore.PageID{born, 15, logstore.BornBit | 7}, dying: []Extent{{16, 2}},
	})))
	for what, table := range map[string][]byte{
		"no root":             tableBytes(2, 6, 3, 9, 10),
		"address 0":           tableBytes(2, 6, 3, Root, 0),
		"address outside":     tableBytes(2, 6, 3, Root, h.pages),
		"name 0":              tableBytes(2, 6, 3, Root, 4, 0, 5),
		"name outside":        tableBytes(2, 6, 3, Root, 4, h.pages, 5),
		"name of itself":      tableBytes(2, 6, 3, Root, 4, 9, 9),
		"name twice":          tableBytes(2, 6, 3, Root, 4, 9, 5, 9, 6),
		"name to be born":     tableBytes(2, 6, 3, Root, 4, logstore.BornBit|7, 5),
		"root of no tree":     tableBytes(2, 6, 3, Root, 4, Root+1, 5),
		"nothing":             nil,
		"less than it claims": tableBytes(2, 6, 3, Root, 4)[:50],
	} {
		require.ErrorIs(t, h.recover(table, nil, putFlushEnd(end)), logstore.ErrCorrupt, what)
	}
	for what, change := range map[string]func(*flushEnd){
		"retires a stranger":     func(e *flushEnd) { e.retired = []retiredName{{20, 21}} },
		"retires with another":   func(e *flushEnd) { e.retired = []retiredName{{9, 11}} },
		"retires the root":       func(e *flushEnd) { e.retired = []retiredName{{Root, 4}} },
		"retires twice":          func(e *flushEnd) { e.retired = []retiredName{{9, 10}, {9, 10}} },
		"removes the root":       func(e *flushEnd) { e.removed = []logstore.PageID{Root} },
		"removes outside":        func(e *flushEnd) { e.removed = []logstore.PageID{h.pages} },
		"death outside":          func(e *flushEnd) { e.dying = []Extent{{h.pages - 1, 2}} },
		"death of nothing":       func(e *flushEnd) { e.dying = []Extent{{5, 0}} },
		"death of a superblock":  func(e *flushEnd) { e.dying = []Extent{{1, 1}} },
		"death beyond a segment": func(e *flushEnd) { e.dying = []Extent{{5, 4}} },
		"redo goes back":         func(e *flushEnd) { e.redo = 1 },
		"counter moves back":     func(e *flushEnd) { e.born = 4 },
	} {
		bad := end
		change(&bad)
		require.ErrorIs(t, h.recover(table, nil, putFlushEnd(bad)), logstore.ErrCorrupt, what)
	}
	require.ErrorIs(t, h.recover(table, []logstore.ScannedPage{treePage(h.pages, 12)}, putFlushEnd(end)), logstore.ErrCorrupt)
	require.NoError(t, h.recover(table, nil, putFlushEnd(flushEnd{base: 2, redo: 2, first: 3, retired: []retiredName{{20, 21}}})),
		"a flush that the table contains is not looked at")
}

func FuzzRecover(f *testing.F) {
	f.Add(tableBytes(2, 6, 3, Root, 4, 9, 10, logstore.BornBit|5, 11), putFlushEnd(flushEnd{base: 5, redo: 5, first: 6, born: 6}), []byte{})
	f.Add(tableBytes(2, 6, 3, Root, 4, 9, 10), putFlushEnd(flushEnd{
		base: 5, redo: 5, first: 6, born: 7, retired: []retiredName{{9, 10}}, removed: []logstore.PageID{15}, dying: []Extent{{16, 2}},
	}), make([]byte, 32))
	h := newHostile(f)
	f.Fuzz(func(t *testing.T, table, stream, names []byte) {
		var pages []logstore.ScannedPage
		for i := logstore.Addr(3); i < 12 && len(names) >= 8; i++ {
			pages = append(pages, treePage(binary.LittleEndian.Uint64(names), i))
			names = names[8:]
		}
		if err := h.recover(table, pages, stream); err != nil {
			require.ErrorIs(t, err, logstore.ErrCorrupt)
		}
	})
}

// What a checkpoint contains is not replayed, nor installed twice: crashes after each step from the flush to
// the end of the checkpoint.
func TestRecoverAroundCheckpoint(t *testing.T) {
	script := func(t *testing.T, steps int) {
		s := newScript(t, true)
		s.put(append(span(0, 60), runKey, largeKey)...)
		s.flushAll()
		s.foldAll()
		s.put(30, runKey, largeKey)
		s.del(span(40, 60)...)
		s.flushUntil(true)
		s.put(20)
		s.must(s.flushWhole())
		s.put(10, runKey)
		for range steps {
			s.must(s.checkpointStep())
		}
		s.put(11)
		s.must(s.sync())
		s.crash(vfs.KeepNone)
		s.flushAll()
		s.must(s.checkInstalled())
		s.checkpoint()
		s.crash(vfs.KeepNone)
		s.must(s.settle())
	}
	for steps := range 6 {
		script(t, steps)
	}
}

// An empty file opened read-only is an empty tree, which stays in memory.
func TestCreateReadOnly(t *testing.T) {
	mem := vfs.NewMem(1 << 20)
	defer mem.Release()
	f, err := mem.Open("empty.db", os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	opts := modelOptions()
	opts.ReadOnly = true
	s, rec, err := logstore.Open(mem, "empty.db", opts)
	require.NoError(t, err)
	defer s.Close()
	require.True(t, rec.Created)
	p, err := Create(s, &lockfree.Registry{}, btree.NewMemory(), true)
	require.NoError(t, err)
	defer p.Close()
	snap := p.At(0)
	n, err := btree.CheckTree(&snap, Root, func(btree.PageID, btree.Node) error { return nil })
	require.NoError(t, err)
	require.Zero(t, n)
}
