package mvcc

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
	"flashdbm/override"
)

// looseEngine returns an engine whose leaves are half empty after deletes. Everything is flushed. Its flushes are
// incremental.
func looseEngine(t *testing.T, mem *vfs.Mem, records int) *Engine {
	t.Helper()
	opts := looseOptions()
	opts.PartBytes = 1 << 30 // otherwise leaves would be filled up meanwhile
	e := openOn(t, mem, opts)
	writeSome(t, e, records, func(tx *Tx, i int) error { return tx.Put(looseKey(i), make([]byte, 100)) })
	require.NoError(t, e.Checkpoint())
	writeSome(t, e, records, func(tx *Tx, i int) error {
		if i%10 < 4 || i%40 == 4 {
			return nil
		}
		return tx.Delete(looseKey(i))
	})
	require.NoError(t, e.Checkpoint())
	e.opts.PartBytes = looseOptions().PartBytes
	return e
}

func looseOptions() Options {
	opts := Options{Durability: Buffered, Manual: true, RedoLimit: 1 << 20}
	opts.KeepInline, opts.PartBytes, opts.Store.SegmentPages = true, 64<<10, 32
	return opts
}

func looseKey(i int) []byte { return fmt.Appendf(nil, "%08d", i) }

func writeSome(t *testing.T, e *Engine, n int, do func(tx *Tx, i int) error) {
	t.Helper()
	for i := 0; i < n; {
		tx := begin(t, e, TxOptions{})
		for end := min(n, i+1000); i < end; i++ {
			require.NoError(t, do(tx, i))
		}
		require.NoError(t, tx.Commit())
	}
}

// fillNextPart calls fillPart for the next part of the dirty leaves.
func fillNextPart(t *testing.T, e *Engine) (part, grown int64, err error) {
	t.Helper()
	n, err := e.flusher.parts()
	require.NoError(t, err)
	require.Greater(t, n, 1)
	e.checkpoints.mu.Lock()
	defer e.checkpoints.mu.Unlock()
	e.flusher.hand = nil
	before := e.pages.DirtyBytes() / logstore.PageSize
	err = e.flusher.fillPart(n)
	return before / int64(n), e.pages.DirtyBytes()/logstore.PageSize - before, err
}

// TestFillsNoMoreThanAPart: if little of a large tree is dirty, the leaves that are filled up before a part are few in
// proportion.
func TestFillsNoMoreThanAPart(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := looseEngine(t, mem, 60_000)
	writeSome(t, e, 1_000, func(tx *Tx, i int) error { return tx.Put(looseKey(30_000+i*10), make([]byte, 100)) })
	part, grown, err := fillNextPart(t, e)
	require.NoError(t, err)
	t.Logf("a part of %d pages, %d more are dirty", part, grown)
	require.Positive(t, grown)
	require.LessOrEqual(t, grown, 2*fillWritten*(part+1))
	require.NoError(t, e.Close())
}

// TestFillsBesideDamage: a damaged leaf that no commit has to read does not make commits fail.
func TestFillsBesideDamage(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	const records = 60_000
	e := looseEngine(t, mem, records)
	tx := begin(t, e, TxOptions{ReadOnly: true})
	n, err := tx.snap.Node(override.Root)
	require.NoError(t, err)
	var id logstore.PageID
	for !n.IsLeaf() {
		id = n.Child(0)
		n, err = tx.snap.Node(id)
		require.NoError(t, err)
	}
	require.True(t, logstore.IsAddr(id))
	key, err := n.Cell(0).WholeKey(nil)
	require.NoError(t, err)
	lost := bytes.Clone(key)
	require.NoError(t, tx.Rollback())
	require.NoError(t, e.Sync())
	image := mem.Crash(vfs.KeepAll, 1)
	defer image.Release()
	require.NoError(t, e.Close())
	f, err := image.Open("a.fdbm", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("damage"), int64(id)*logstore.PageSize+2000)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	e = openOn(t, image, looseOptions())
	put := func() {
		writeSome(t, e, records/20, func(tx *Tx, i int) error { return tx.Put(looseKey(records/2+i*10), make([]byte, 100)) })
	}
	put()
	require.NoError(t, e.Checkpoint()) // from here on the number of bytes of records is known
	put()
	_, _, err = fillNextPart(t, e)
	require.NoError(t, err)
	require.NoError(t, e.Failed())
	put()
	tx = begin(t, e, TxOptions{ReadOnly: true})
	_, _, err = tx.Get(lost)
	require.ErrorIs(t, err, logstore.ErrCorrupt)
	require.NoError(t, tx.Rollback())
	e.Close()
}
