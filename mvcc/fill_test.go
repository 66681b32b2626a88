package mvcc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/internal/writeset"
	"flashdbm/logstore"
)

// TestFill: commits that would not fill the last page of a group are left to the next batch, but never the leader's
// own. On a slow device at most half a page is left, and nothing after a batch that has left commits.
func TestFill(t *testing.T) {
	const small = 100
	onPage := logstore.BodySize / (4 + 8 + small) // records per page, as redoBytes counts
	for _, c := range []struct {
		name    string
		commits int
		own     int
		kept    int // expected on a slow device
		fast    int // expected on a fast device
		value   int
	}{
		{"less than a page", onPage, 0, onPage, onPage, small},
		{"a little more than a page", onPage + 5, 7, onPage, onPage, small},
		{"most of a second page", onPage + onPage*3/4, 7, onPage + onPage*3/4, onPage, small},
		{"nearly two pages", 2*onPage - 1, 7, 2*onPage - 1, 2*onPage - 1, small},
		{"a little more than two pages", 2*onPage + 5, 0, 2 * onPage, 2 * onPage, small},
		{"many pages", fillPages*onPage + 5, 0, fillPages*onPage + 5, fillPages*onPage + 5, small},
		{"three, of which two would leave a gap", 3, 0, 3, 3, 1500},
		{"three, of which two would leave none", 3, 0, 2, 2, 1900},
		{"the leader's is among the newest", onPage + 5, onPage + 2, onPage + 5, onPage + 5, small},
	} {
		for _, run := range []struct {
			durability Durability
			slow       bool
			async      bool // no caller waits for the newest commit
		}{{Durable, true, false}, {Durable, false, false}, {WriteThrough, true, false}, {Durable, true, true}, {Durable, false, true}} {
			t.Run(fmt.Sprint(c.name, run), func(t *testing.T) {
				e := newEngine(t, Options{Manual: true, Durability: run.durability})
				e.token.take()
				defer e.token.pass(true)
				fill := func(own *commitNode) []*commitNode {
					return e.committer.fill(e.committer.resolver.list.Drain(nil), own, run.slow)
				}
				var pushed []*commitNode
				push := func(i int) {
					n := &commitNode{}
					n.Value.set = &writeset.Set{}
					n.Value.tx = &Tx{kept: kept{wake: make(chan signal, 1)}}
					n.Value.set.Put(fmt.Appendf(nil, "%08d", i), make([]byte, c.value))
					require.True(t, e.committer.resolver.list.Push(n, e.committer.resolver.list.Head()))
					pushed = append(pushed, n)
				}
				for i := range c.commits {
					push(i)
				}
				kept := c.kept
				if !run.slow {
					kept = c.fast
				}
				if run.async {
					pushed[c.commits-1].Value.tx.async = asyncCommit{done: func(error) {}}
				}
				if run.durability != Durable || run.async {
					kept = c.commits
				}
				nodes := fill(pushed[c.own])
				require.Equal(t, pushed[:kept], nodes)
				require.Equal(t, kept < c.commits, e.committer.left)
				if e.committer.left {
					for i := range c.commits {
						push(i)
					}
					nodes = fill(pushed[kept])
					require.GreaterOrEqual(t, len(nodes), c.commits-kept, "none is left twice")
					require.Equal(t, pushed[kept:kept+len(nodes)], nodes)
					require.Equal(t, e.committer.left, kept+len(nodes) < len(pushed))
					if run.slow {
						require.False(t, e.committer.left)
					}
					e.committer.resolver.list.Drain(nil)
				}
				require.Empty(t, e.committer.resolver.list.Drain(nil))
			})
		}
	}
}

// TestLeftCommits: commits that are left to the next batch are completed too. Commits of the same key are completed in
// the order in which they depend on each other.
func TestLeftCommits(t *testing.T) {
	const committers, each, value = 20, 100, 300 // a page has room for 13 values
	e := newEngine(t, Options{Durability: Durable, Store: logstore.Options{SegmentPages: 64}})
	within(t, func() {
		together(committers, func(c int) {
			for i := range each {
				assert.NoError(t, persist(e, TxOptions{}, func(tx *Tx) error {
					if i%5 > 0 {
						return tx.Put(fmt.Appendf(nil, "%02d %02d", c, i%10), make([]byte, value))
					}
					key := fmt.Appendf(nil, "counter %d", c%5)
					old, _, err := tx.Get(key)
					if err != nil {
						return err
					}
					return tx.Put(key, append(bytes.Clone(old), 1))
				}))
			}
		})
	})
	tx := begin(t, e, TxOptions{})
	defer tx.Rollback()
	for i := range 5 {
		require.Len(t, get(t, tx, fmt.Sprint("counter ", i)), committers/5*each/5)
	}
}

// TestDevice: a slow device is recognized as slow from the first batches on, and a pause does not change that.
func TestDevice(t *testing.T) {
	var d device
	now := time.Now()
	batches := func(n int, sync, other time.Duration) {
		for range n {
			now = now.Add(sync + other)
			d.turnAt(now)
			d.wait(sync)
		}
	}
	batches(4, 8*time.Millisecond, time.Millisecond)
	require.True(t, d.slow())
	now = now.Add(time.Hour)
	batches(4, 8*time.Millisecond, time.Millisecond)
	require.True(t, d.slow())
	batches(4*deviceBatches, time.Millisecond, 3*time.Millisecond)
	require.False(t, d.slow())
	batches(4*deviceBatches, 8*time.Millisecond, time.Millisecond)
	require.True(t, d.slow())
}
