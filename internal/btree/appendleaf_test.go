package btree

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAppendedLeavesAreThoseOfASplit appends ops after a leaf in both ways that Apply has, and compares the
// resulting pages.
func TestAppendedLeavesAreThoseOfASplit(t *testing.T) {
	inTurn(t)
	r := rand.New(rand.NewSource(1))
	done, rounds := 0, 600
	if testing.Short() {
		rounds = 150
	}
	for round := range rounds {
		tr := newTree()
		tr.memory.Even = round%5 > 0
		prefix := make([]byte, r.Intn(3)*r.Intn(300))
		next := r.Intn(100)
		ops := func(n, most int) (ops []Op) {
			for range n {
				key := fmt.Appendf(slices.Clone(prefix), "%07d%s", next, make([]byte, r.Intn(2)*r.Intn(20)*(round%3)))
				length := r.Intn(1 + min(most, MaxInline-len(key)))
				if round%3 == 0 { // even leaves
					length = min(most, MaxInline-len(key)) / 2
				}
				ops = append(ops, Op{Key: key, Value: make([]byte, length)})
				r.Read(ops[len(ops)-1].Value)
				next += 1 + r.Intn(1+r.Intn(300))
			}
			return ops
		}
		most := []int{0, 8, 100, MaxInline}[round%4]
		if n := r.Intn(4) * r.Intn(200); n > 0 {
			for _, op := range ops(n, most) {
				if root, _ := tr.Node(rootID); root.bytes()+leafEntryBytes+op.cellLen() <= BodySize {
					tr.mustApply(t, op)
				}
			}
		}
		if r.Intn(2) == 0 {
			tr.write(t)
		}
		n, err := tr.Node(rootID)
		require.NoError(t, err)
		batch := ops(leastAppended+r.Intn(1000), most)
		switch r.Intn(6) { // a batch that does not qualify
		case 0:
			batch[r.Intn(len(batch))] = Op{Key: batch[len(batch)-1].Key, Delete: true}
		case 1:
			if n.Count() > 0 {
				batch[0].Key = n.key(n.Count() - 1)
			}
		}

		type leaves struct {
			added int64
			pages [][]byte
			bytes []int // sizes in memory, with spare room
		}
		collect := func(a *applier, first Node, became state) (l leaves) {
			l.added = a.added
			page := func(n Node) {
				body := make([]byte, BodySize)
				n.Encode(body, tr.memory.Even)
				l.pages = append(l.pages, body)
				l.bytes = append(l.bytes, classBytes[load16(n.heap, heapClassAt)&0xFF])
			}
			if became == changed {
				page(first)
			} else {
				l.pages, l.bytes = append(l.pages, nil), append(l.bytes, 0)
			}
			for _, p := range a.pieces {
				l.pages = append(l.pages, fmt.Appendf(nil, "%q %v", p.bytes, p.cut))
				page(p.node)
			}
			return l
		}
		var a applier
		a.start(tr)
		first, became, ok, err := a.appendLeaves(n, batch)
		require.NoError(t, err)
		if !ok {
			require.Empty(t, a.pieces)
			require.Zero(t, a.added)
			tr.memory.Close()
			continue
		}
		done++
		got := collect(&a, first, became)
		a.start(tr)
		count, cells, _, err := a.edit(n, batch)
		require.NoError(t, err)
		require.False(t, leafFits(count, cells, a.even))
		first, became = a.splitLeaf(n, true)
		require.Equal(t, collect(&a, first, became), got)
		tr.memory.Close()
	}
	require.Greater(t, done, rounds/3)
}
