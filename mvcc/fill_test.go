package mvcc

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// TestFill: what would fill half of a group's last page or less is left to the next batch, once, and never the leader's own commit.
func TestFill(t *testing.T) {
	const small = 100
	onPage := logstore.BodySize / (4 + 8 + small) // by what redoBytes counts
	for _, c := range []struct {
		name    string
		commits int
		own     int
		kept    int
		value   int
	}{
		{"less than a page", onPage, 0, onPage, small},
		{"a little more than a page", onPage + 5, 7, onPage, small},
		{"most of a second page", onPage + onPage*3/4, 7, onPage + onPage*3/4, small},
		{"a little more than two pages", 2*onPage + 5, 0, 2 * onPage, small},
		{"many pages", fillPages*onPage + 5, 0, fillPages*onPage + 5, small},
		{"three, of which two would leave a gap", 3, 0, 3, 1500},
		{"three, of which two would leave none", 3, 0, 2, 1900},
		{"the leader's is among the newest", onPage + 5, onPage + 2, onPage + 5, small},
	} {
		for _, durability := range []Durability{Durable, WriteThrough} {
			t.Run(fmt.Sprint(c.name, durability), func(t *testing.T) {
				e := newEngine(t, Options{Manual: true, Durability: durability})
				e.takeBaton()
				defer e.putBaton(true)
				var pushed []*commitNode
				push := func(i int) {
					n := &commitNode{}
					n.Value.set = &WriteSet{}
					n.Value.wake = make(chan signal, 1)
					n.Value.set.Put(fmt.Appendf(nil, "%08d", i), make([]byte, c.value))
					require.True(t, e.list.Push(n, e.list.Head()))
					pushed = append(pushed, n)
				}
				for i := range c.commits {
					push(i)
				}
				kept := c.kept
				if durability != Durable {
					kept = c.commits
				}
				nodes := e.fill(e.list.Drain(nil), pushed[c.own])
				require.Equal(t, pushed[:kept], nodes)
				require.Equal(t, kept < c.commits, e.left)
				if e.left {
					for i := range c.commits {
						push(i)
					}
					require.Equal(t, pushed[kept:], e.fill(e.list.Drain(nil), pushed[kept]))
					require.False(t, e.left)
				}
				require.Empty(t, e.list.Drain(nil))
				e.drained.Store(e.list.Head()) // they are in no batch
			})
		}
	}
}

// TestLeftCommits: commits that are left are settled all the same, and those of the same key in the order in which they depend on each other.
func TestLeftCommits(t *testing.T) {
	const committers, each, value = 20, 100, 300 // of which a page has 13
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
