package override

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"flashdbm/logstore"

	"github.com/stretchr/testify/require"
)

func tableOf(t *table) map[logstore.PageID]*entry {
	m := map[logstore.PageID]*entry{}
	t.all(func(l *link) { m[l.id] = l.entry })
	return m
}

func TestTableAgainstMap(t *testing.T) {
	inTurn(t)
	r := rand.New(rand.NewPCG(7, 7))
	for _, expected := range []int{0, 1, 1000} {
		table, want := newTable(expected), map[logstore.PageID]*entry{}
		for range 20000 {
			id := logstore.PageID(r.IntN(3000)) << (r.IntN(2) * 40)
			if r.IntN(2) == 0 {
				id |= logstore.BornBit
			}
			switch e := want[id]; {
			case e == nil:
				e, _ = newEntry(id)
				table.insert(e)
				want[id] = e
			case r.IntN(3) > 0:
				table.remove(e)
				delete(want, id)
			}
			require.Same(t, want[id], table.find(id))
		}
		require.Equal(t, want, tableOf(table))
		require.EqualValues(t, len(want), table.count.Load())
		require.LessOrEqual(t, len(want), len(table.buckets.Load().heads))
	}
}

func TestTableRemoveOfAStranger(t *testing.T) {
	table := newTable(0)
	known, _ := newEntry(1)
	table.insert(known)
	stranger, _ := newEntry(1)
	require.Panics(t, func() { table.remove(stranger) })
}

func TestEntryAt(t *testing.T) {
	e, _ := newEntry(5)
	old := &version{seq: 3}
	newer := &version{seq: 7}
	newer.next.Store(old)
	e.show(newer)
	for seq, want := range map[uint64]*version{2: nil, 3: old, 6: old, 7: newer, 9: newer} {
		require.Same(t, want, e.link.at(seq), seq)
	}
	require.EqualValues(t, 5, e.place())
	e.disk = 9
	require.EqualValues(t, 9, e.place())
	require.Zero(t, (&entry{id: logstore.BornBit | 1}).place())
}

// A version that comes after a growth is found by every lookup that begins afterwards. A reader with the earlier
// bucket array finds the version of that time.
func TestTableGrowsWithHeads(t *testing.T) {
	table := newTable(0)
	var entries []*entry
	add := func() {
		e, first := newEntry(1 + logstore.PageID(len(entries)))
		first.seq = 1
		table.insert(e)
		entries = append(entries, e)
	}
	for range 1 << minTableLog {
		add()
	}
	before := table.buckets.Load()
	for i, e := range entries {
		e.show(&version{seq: 2 + uint64(i%2)})
	}
	add()
	require.NotSame(t, before, table.buckets.Load(), "it did not grow")
	for i, e := range entries[:1<<minTableLog] {
		was := e.newest()
		require.EqualValues(t, 2+i%2, was.seq, "a growth lost a version")
		next := &version{seq: 9}
		next.next.Store(was)
		e.show(next)
		require.Same(t, next, table.look(e.id).at(9))
		require.Same(t, was, table.look(e.id).at(8))
		l := before.head(e.id).Load()
		for l.id != e.id {
			l = l.next.Load()
		}
		require.Same(t, was, l.at(8))
	}
}

// Readers find every entry that stays, while the table grows and others are added and removed.
func TestTableReaders(t *testing.T) {
	const stay, rounds = 500, 400
	table := newTable(0)
	var inserted atomic.Int64 // entries that stay
	var done atomic.Bool
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for !done.Load() {
				n := inserted.Load()
				if n == 0 {
					continue
				}
				id := 1 + logstore.PageID(r.Int64N(n))
				if e := table.find(id); e == nil || e.id != id {
					t.Errorf("entry %d is not found", id)
					return
				}
				table.all(func(l *link) { _ = l.entry.id })
			}
		})
	}
	var passing []*entry
	for round := range rounds {
		for i := range 20 {
			e, _ := newEntry(logstore.BornBit | logstore.PageID(round*20+i))
			table.insert(e)
			passing = append(passing, e)
		}
		if n := inserted.Load(); n < stay {
			e, _ := newEntry(1 + logstore.PageID(n))
			table.insert(e)
			inserted.Add(1)
		}
		for len(passing) > 40 {
			table.remove(passing[0])
			passing = passing[1:]
		}
	}
	done.Store(true)
	readers.Wait()
}

// TestTableReplaces: a version is inserted with a new link. It is found through its bucket, wherever the old link is
// in the chain. A reader that still has the old link finds the version of that time, and continues along the chain.
func TestTableReplaces(t *testing.T) {
	table, r := newTable(0), rand.New(rand.NewPCG(3, 3))
	var entries []*entry
	for range 1 << minTableLog { // several names share a bucket
		e, first := newEntry(logstore.PageID(r.Uint64()))
		first.seq = 1
		table.insert(e)
		entries = append(entries, e)
	}
	longest := 0
	for seq := uint64(2); seq < 5; seq++ {
		for _, e := range entries {
			was, before := e.newest(), e.link
			f := renew(e)
			f.first.seq = seq
			f.first.next.Store(was)
			table.replace(e, f)
			require.Same(t, &f.first, e.newest())
			require.Same(t, e.link, table.look(e.id))
			require.Same(t, &f.first, table.look(e.id).at(seq))
			require.Same(t, was, table.look(e.id).at(seq-1))
			require.Same(t, was, before.at(seq-1))
			require.Same(t, before.next.Load(), e.link.next.Load())
		}
		require.Len(t, tableOf(table), len(entries))
		for i := range table.buckets.Load().heads {
			n := 0
			for l := table.buckets.Load().heads[i].Load(); l != nil; l = l.next.Load() {
				n++
				require.Same(t, l, l.entry.link)
			}
			longest = max(longest, n)
		}
	}
	require.Greater(t, longest, 2)
	for _, e := range entries {
		table.remove(e)
		f := renew(e) // for an entry that has left the table
		f.first.seq = 9
		table.replace(e, f)
		require.Same(t, &f.first, e.newest())
	}
	require.Empty(t, tableOf(table))
}

// TestTableReplacesBesideReaders: readers at a published Seq find the versions of that Seq in all chains, while pages
// get newer versions and the table grows.
func TestTableReplacesBesideReaders(t *testing.T) {
	const pages, rounds = 100, 60
	table := newTable(0)
	var entries []*entry
	add := func(seq uint64) {
		e, first := newEntry(1 + logstore.PageID(len(entries)))
		first.seq = seq
		table.insert(e)
		entries = append(entries, e)
	}
	for range pages {
		add(1)
	}
	var published atomic.Uint64
	published.Store(1)
	var done atomic.Bool
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for !done.Load() {
				seq := published.Load()
				id := 1 + logstore.PageID(r.IntN(pages))
				l := table.look(id)
				if l == nil {
					t.Errorf("page %d is not found", id)
					return
				}
				if v := l.at(seq); v == nil || v.seq != seq {
					t.Errorf("page %d at %d: %v", id, seq, v)
					return
				}
			}
		})
	}
	for seq := uint64(2); seq < rounds && !t.Failed(); seq++ {
		for _, i := range rand.New(rand.NewPCG(seq, 2)).Perm(len(entries)) {
			e := entries[i]
			f := renew(e)
			f.first.seq = seq
			f.first.next.Store(e.newest())
			table.replace(e, f)
		}
		add(seq) // the table grows now and then
		published.Store(seq)
	}
	done.Store(true)
	readers.Wait()
}
