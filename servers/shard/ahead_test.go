package shard

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// post sends a request without waiting for its answer.
func (d *desk) post(q protocol.Request) {
	d.request++
	if q.Op.IsWrite() {
		d.number++
		q.Number, q.Oldest = d.number, 1
	}
	d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(q.Op), Flags: uint8(q.Flags), Request: d.request}, Body: q.AppendBody(nil)})
	d.s.Sweep()
}

// TestFileAhead: in sync mode the file has entries that are not synced yet. Items that are loaded or fetched from the
// file meanwhile show none of them, and the table does not count as complete before they are shown.
func TestFileAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	first := newDesk(t, Sync, path, nil)
	first.put("old", "1")
	first.put("removed", "1")
	first.close()

	f, err := store.OpenFile(path, 0)
	require.NoError(t, err)
	st, err := store.Open(f, func() {}, 0) // the test does the work of its threads
	require.NoError(t, err)
	st.Gather(1)
	domain := mem.NewNetwork().Open()
	d := &desk{t: t, st: st, now: 1e9, wall: 1e12}
	d.s, err = New(Options{
		Seed: 5, Durability: Sync, Alloc: domain.Alloc, Arena: arena.Options{Extent: 1 << 20}, Store: st,
		Clock: func() (int64, uint64) { return d.now, d.wall },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		d.close()
		assert.NoError(t, domain.Close())
	})
	d.now += int64(2 * time.Second)
	d.s.toLoad = false
	d.s.Sweep()
	d.s.Attach(d, Greeting{Client: 1, Next: 1})

	find := func(key string) bool {
		_, ok := d.s.table.Find(d.s.hash([]byte(key)), []byte(key))
		return ok
	}
	now := time.Now()
	d.post(protocol.Request{Op: protocol.OpPut, Key: []byte("new"), Value: []byte("2")})
	d.post(protocol.Request{Op: protocol.OpRemove, Key: []byte("removed")}) // it waits: only the file knows whether the key exists
	assert.True(t, d.s.AwaitsFile(), "a lookup, and a sync")
	st.StepFetcher(now)
	st.StepFetcher(now)
	d.s.Sweep()
	assert.True(t, d.s.AwaitsFile(), "a sync")
	st.StepCommitter(now)
	require.EqualValues(t, 4, st.Applied())
	require.EqualValues(t, 2, st.Durable())

	d.s.load()
	st.StepLoader(now)
	st.StepLoader(now)
	d.s.Sweep()
	assert.True(t, find("old"))
	assert.False(t, find("new"), "what is not committed is not shown")
	assert.True(t, d.s.loaded)
	assert.False(t, d.s.complete, "an absent key may be one that is pending")
	d.post(protocol.Request{Op: protocol.OpGet, Key: []byte("new")})
	st.StepFetcher(now)
	st.StepFetcher(now)
	d.s.Sweep()
	assert.Empty(t, d.out, "all answers rest on what is not committed")

	st.StepSyncer(now)
	st.StepSyncer(now)
	d.s.Sweep()
	require.Len(t, d.out, 3)
	assert.False(t, d.s.AwaitsFile())
	for _, m := range d.out {
		assert.EqualValues(t, protocol.StatusOK, m.Status)
	}
	assert.True(t, find("new"))
	assert.False(t, find("removed"))
	assert.True(t, d.s.complete)
}
