package partition

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"flashdbm/servers/arena"
	"flashdbm/servers/circle"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp/protocol"
	"flashdbm/servers/store"

	"github.com/stretchr/testify/require"
)

// withFile gives a bench a file; the test steps the file's threads.
func withFile(t *testing.T, mode Durability, inherited func(f store.VersionFile) store.Inherited) (b *bench, f store.VersionFile, st *store.Store) {
	b = &bench{t: t, wall: someTime, mono: 1}
	d := mem.NewNetwork().Open()
	f, err := store.OpenVersions(filepath.Join(t.TempDir(), "p.fdbm"), 0)
	require.NoError(t, err)
	pause := time.Duration(0)
	if mode == Async {
		pause = time.Millisecond
	}
	st, err = store.Open(f, func() {}, pause)
	require.NoError(t, err)
	o := Options{
		Durability: mode, Seed: 5, Arena: arena.Options{Extent: 64 << 10, Limit: 64 << 10}, Alloc: d.Alloc, Store: st,
		Clock: func(uint64) (int64, uint64) { return b.mono, b.wall },
		Owner: func(h uint64) uint32 {
			if h == circle.Hash(5, []byte("elsewhere")) {
				return 1
			}
			return 0
		},
		Tell: func(_ uint32, n Note) { b.told = append(b.told, n) },
	}
	if inherited != nil {
		o.Inherited = inherited(f)
	}
	b.p, err = New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.p.Close())
		require.NoError(t, st.Close())
		require.NoError(t, d.Close())
	})
	return b, f, st
}

// sync has the store apply and sync everything.
func (b *bench) sync(st *store.Store) {
	for range 6 {
		b.later += time.Hour // longer than any pause of the store
		now := time.Now().Add(b.later)
		st.StepCommitter(now)
		st.StepSyncer(now)
		for range 50 {
			st.StepFetcher(now)
		}
		b.p.Step()
	}
}

func (b *bench) question(keys ...string) *protocol.Prepare {
	q := &protocol.Prepare{Client: 9, Kind: protocol.KindHashes}
	for _, k := range append(keys, "elsewhere") {
		q.Hashes = append(q.Hashes, circle.Hash(5, []byte(k)))
	}
	q.Hashes = protocol.SortHashes(q.Hashes)
	for _, k := range keys {
		q.Parts = append(q.Parts, protocol.Part{Key: []byte(k), Value: []byte("value of " + k)})
	}
	return q
}

func stateOf(t *testing.T, f store.VersionFile, ts Timestamp) store.TransactionState {
	in, err := f.Inherit(func(uint64) bool { return true })
	require.NoError(t, err)
	for _, x := range in.Transactions {
		if x.TS == uint64(ts) {
			return x.State
		}
	}
	return 0
}

// TestSyncMode: a PREPARE is answered, and other partitions hear of it, once it is synced.
func TestSyncMode(t *testing.T) {
	b, f, st := withFile(t, Sync, nil)
	answers := 0
	q := b.question("a")
	q.TS = at(1)
	b.p.Look()
	b.p.Prepare(q, 0, func(s protocol.Status, _ Timestamp) {
		require.Equal(t, protocol.StatusOK, s)
		answers++
	})
	b.p.Hear(Note{From: 1, TS: at(1), Client: 9, State: NotePrepared, Synced: true, Question: true})
	b.p.Step()
	require.Zero(t, answers)
	require.Empty(t, b.told)
	b.sync(st)
	require.Equal(t, 1, answers)
	require.Len(t, b.told, 1)
	require.True(t, b.told[0].Synced)
	require.Equal(t, store.Prepared, stateOf(t, f, at(1)))
	b.commit(at(1))
	require.Equal(t, at(1), b.get("a", 0).TS, "the COMMIT need not be synced")
	b.sync(st)
	require.Equal(t, store.Committed, stateOf(t, f, at(1)))
	b.p.Hear(Note{From: 1, TS: at(1), Client: 9, State: NoteCommitted, Synced: true, Settled: true})
	b.sync(st)
	require.Zero(t, stateOf(t, f, at(1)), "all have it")
	r, found, err := f.Get(circle.Hash(5, []byte("a")), []byte("a"))
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, at(1), r.Version)
}

// TestAsyncMode: a COMMIT goes to the file when the other partition has synced the PREPARE; until then the version is
// not evicted.
func TestAsyncMode(t *testing.T) {
	b, f, st := withFile(t, Async, nil)
	q := b.question("a")
	q.TS = at(1)
	b.p.Look()
	b.p.Prepare(q, 0, func(s protocol.Status, _ Timestamp) { require.Equal(t, protocol.StatusOK, s) })
	require.Equal(t, protocol.StatusOK, b.commit(at(1)))
	b.sync(st)
	require.Equal(t, store.Prepared, stateOf(t, f, at(1)))
	for i := range uint64(120) { // more than memory has room for
		h := circle.Hash(5, fmt.Appendf(nil, "%0600d", i))
		q := &protocol.Prepare{TS: at(100 + i), Client: 9, Kind: protocol.KindHashes, Hashes: []uint64{h}, Parts: []protocol.Part{{Key: fmt.Appendf(nil, "%0600d", i)}}}
		b.p.Look()
		b.p.Prepare(q, protocol.FlagOnePhase, func(s protocol.Status, _ Timestamp) { require.Equal(t, protocol.StatusOK, s) })
		if i%20 == 19 {
			b.sync(st)
		}
	}
	require.Positive(t, b.p.Stats().Evictions)
	require.Equal(t, at(1), b.get("a", 0).TS)
	b.p.Hear(Note{From: 1, TS: at(1), Client: 9, State: NotePrepared, Synced: true})
	b.sync(st)
	require.Equal(t, store.Committed, stateOf(t, f, at(1)))
	for i := range uint64(3) { // evicted versions come from the file
		var v protocol.Version
		b.p.Get(&protocol.Get{Keys: []protocol.Wanted{{Key: fmt.Appendf(nil, "%0600d", i)}}}, 0, func(_ int, x *protocol.Version) { v = *x }, func(protocol.Status) {})
		b.sync(st)
		require.Equal(t, at(100+i), v.TS)
	}
}

// TestInherited: a transaction that was prepared when the last life ended is finished before its keys are read.
func TestInherited(t *testing.T) {
	b, _, _ := withFile(t, Sync, func(f store.VersionFile) store.Inherited {
		h := circle.Hash(5, []byte("a"))
		m := protocol.MakeMeta(protocol.KindHashes, 1, []uint64{h})
		content := m.AppendContent(nil, []byte("v"))
		return store.Inherited{
			Transactions: []store.Transaction{{TS: uint64(at(7)), Client: 9, State: store.Prepared, Hashes: protocol.SortHashes([]uint64{h, circle.Hash(5, []byte("elsewhere"))})}},
			Versions:     []store.Version{{TS: uint64(at(7)), Hash: h, Key: []byte("a"), Value: content}},
			Newest:       []store.Version{{TS: uint64(at(3)), Hash: h, Key: []byte("a"), Value: content}},
		}
	})
	var got []Timestamp
	b.p.Look()
	b.p.Get(&protocol.Get{Keys: []protocol.Wanted{{Key: []byte("a")}}}, 0, func(_ int, v *protocol.Version) { got = append(got, v.TS) }, func(protocol.Status) {})
	require.Empty(t, got)
	b.p.Step()
	require.Len(t, b.told, 1, "the other partition is asked at once")
	b.p.Hear(Note{From: 1, TS: at(7), Client: 9, State: NotePrepared, Synced: true})
	require.Equal(t, []Timestamp{at(7)}, got)
}

// TestLargeGet: a request for more than memory has room for is refused; parts of it are answered.
func TestLargeGet(t *testing.T) {
	b, _, st := withFile(t, Sync, nil)
	var all protocol.Get
	for i := range uint64(40) {
		k := fmt.Appendf(nil, "%03000d", i)
		all.Keys = append(all.Keys, protocol.Wanted{Key: k})
		q := &protocol.Prepare{TS: at(100 + i), Client: 9, Kind: protocol.KindHashes, Hashes: []uint64{circle.Hash(5, k)}, Parts: []protocol.Part{{Key: k}}}
		b.p.Look()
		b.p.Prepare(q, protocol.FlagOnePhase, func(s protocol.Status, _ Timestamp) { require.Equal(t, protocol.StatusOK, s) })
		b.sync(st)
	}
	require.Positive(t, b.p.Stats().Evictions)
	ask := func(q *protocol.Get) (s protocol.Status) {
		s = 99
		b.p.Get(q, 0, func(_ int, v *protocol.Version) { require.Equal(t, protocol.StateFound, v.State) }, func(x protocol.Status) { s = x })
		for range 10 {
			b.sync(st)
			b.mono += int64(50 * time.Millisecond)
		}
		return s
	}
	require.Equal(t, protocol.StatusFull, ask(&all))
	for from := 0; from < len(all.Keys); from += 5 {
		require.Equal(t, protocol.StatusOK, ask(&protocol.Get{Keys: all.Keys[from : from+5]}), "keys from %d", from)
	}
	q := &protocol.Prepare{TS: at(9000), Client: 9, Kind: protocol.KindHashes}
	for _, k := range all.Keys {
		q.Hashes = append(q.Hashes, circle.Hash(5, k.Key))
	}
	q.Hashes = protocol.SortHashes(q.Hashes)
	for _, h := range q.Hashes {
		for _, k := range all.Keys {
			if circle.Hash(5, k.Key) == h {
				q.Parts = append(q.Parts, protocol.Part{Removed: true, Key: k.Key})
			}
		}
	}
	s := protocol.Status(99)
	b.p.Prepare(q, 0, func(x protocol.Status, _ Timestamp) { s = x })
	for range 10 {
		b.sync(st)
		b.mono += int64(50 * time.Millisecond)
	}
	require.Equal(t, protocol.StatusFull, s)
	require.Equal(t, protocol.StatusOK, ask(&protocol.Get{Keys: all.Keys[:5]}), "it goes on")
	require.Zero(t, b.p.waiting)
}

// TestBeyondMemory: transactions that were not finished when the last life ended come back into memory, even beyond
// its limit.
func TestBeyondMemory(t *testing.T) {
	const n = 30 // of 3 KB each, twice, in a memory of 64 KiB
	b, _, _ := withFile(t, Sync, func(store.VersionFile) (in store.Inherited) {
		m := protocol.MakeMeta(protocol.KindHashes, 1, []uint64{1})
		for i := range uint64(n) {
			k := fmt.Appendf(nil, "%03000d", i)
			h := circle.Hash(5, k)
			in.Transactions = append(in.Transactions, store.Transaction{TS: uint64(at(7 + i)), Client: 9, State: store.Prepared, Hashes: protocol.SortHashes([]uint64{h, circle.Hash(5, []byte("elsewhere"))})})
			in.Versions = append(in.Versions, store.Version{TS: uint64(at(7 + i)), Hash: h, Key: k, Value: m.AppendContent(nil, nil)})
			in.Newest = append(in.Newest, store.Version{TS: uint64(at(3)), Hash: h, Key: k, Value: m.AppendContent(nil, nil)})
		}
		return in
	})
	require.Equal(t, n, b.p.Stats().Prepared)
	require.Equal(t, n, b.p.Stats().Keys)
}

// TestSetBack: the file has later timestamps than the clock shows. The partition, and the other partitions of its
// node, go on from these timestamps.
func TestSetBack(t *testing.T) {
	const later = 3_600_000
	b, _, _ := withFile(t, Sync, func(store.VersionFile) store.Inherited { return store.Inherited{Floor: uint64(at(later))} })
	var ahead []uint64
	b.p.o.Clock = func(least uint64) (int64, uint64) {
		if least != 0 {
			ahead = append(ahead, least)
		}
		return b.mono, b.wall
	}
	q := b.question("a")
	try := func(ts Timestamp) (s protocol.Status, n Timestamp) {
		q.TS = ts
		b.p.Look()
		s = protocol.StatusOK // unless it is refused at once
		b.p.Prepare(q, 0, func(x protocol.Status, y Timestamp) { s, n = x, y })
		return s, n
	}
	s, _ := try(at(1))
	require.Equal(t, protocol.StatusClock, s)
	b.mono += 1e6
	s, n := try(at(later - 5000))
	require.Equal(t, protocol.StatusRefused, s)
	require.Equal(t, at(later), n)
	s, _ = try(at(later + 1))
	require.Equal(t, protocol.StatusOK, s)
	b.p.inFile(at(2 * later))
	require.Equal(t, []uint64{someTime + 2*later - clockWindow}, ahead)
}

// TestRoomKeepsItsOwn: a PREPARE makes room for its versions, but not by evicting the versions of its own keys.
func TestRoomKeepsItsOwn(t *testing.T) {
	b, _, st := withFile(t, Sync, nil)
	key := func(i int) []byte { return fmt.Appendf(nil, "%03000d", i) }
	put := func(ts Timestamp, i int) protocol.Status {
		h := circle.Hash(5, key(i))
		q := &protocol.Prepare{TS: ts, Client: 9, Kind: protocol.KindHashes, Hashes: []uint64{h}, Parts: []protocol.Part{{Key: key(i)}}}
		s := protocol.Status(99)
		b.p.Look()
		b.p.Prepare(q, protocol.FlagOnePhase, func(x protocol.Status, _ Timestamp) { s = x })
		b.sync(st)
		return s
	}
	const n = 16 // as many as memory has room for
	for i := range n {
		require.Equal(t, protocol.StatusOK, put(at(uint64(1+i)), i))
	}
	find := func(i int) (v protocol.Version) {
		b.p.Get(&protocol.Get{Keys: []protocol.Wanted{{Key: key(i)}}}, 0, func(_ int, x *protocol.Version) { v = *x }, func(protocol.Status) {})
		for tries := 0; v.TS == 0 && tries < 5; tries++ {
			b.sync(st)
		}
		require.Equal(t, protocol.StateFound, v.State)
		require.Equal(t, at(uint64(1+i)), v.TS)
		return v
	}
	ts := uint64(100)
	for range 4 { // each key is written again while all of them were used, so CLOCK may evict any of them
		for i := range n {
			for j := range n {
				find(j)
			}
			ts++
			h := circle.Hash(5, key(i))
			q := &protocol.Prepare{TS: at(ts), Client: 9, Kind: protocol.KindHashes, Hashes: protocol.SortHashes([]uint64{h, circle.Hash(5, []byte("elsewhere"))}), Parts: []protocol.Part{{Key: key(i)}}}
			b.p.Look()
			s := protocol.Status(99)
			b.p.Prepare(q, 0, func(x protocol.Status, _ Timestamp) { s = x })
			b.sync(st)
			require.NotEqual(t, protocol.Status(99), s)
			find(i)
			if s == protocol.StatusOK {
				b.p.Abort(protocol.Transaction{TS: at(ts), Client: 9}, func(protocol.Status) {})
			}
		}
	}
}
