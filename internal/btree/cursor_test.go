package btree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCursorMoves runs scripts of moves. Each move is followed by the key it must lead to, or "-" if it must lead to none.
func TestCursorMoves(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	var ops []Op
	for i := 10; i < 1000; i += 10 {
		ops = append(ops, Op{Key: fmt.Appendf(nil, "%03d", i), Value: make([]byte, 500)})
	}
	tr.mustApply(t, ops...)
	empty := newTree()
	defer empty.memory.Close()
	for _, c := range []struct {
		tree   *tree
		script string
	}{
		{tr, "next 010 next 020 prev 010 prev - prev - next 010"},
		{tr, "prev 990 next - next - prev 990 prev 980"},
		{tr, "first 010 prev - prev - next 010"},
		{tr, "last 990 next - prev 990"},
		{tr, "seek:500 500 next 510 seek:501 510 prev 500"},
		{tr, "seek:991 - prev 990 seek:999 - next - prev 990"},
		{tr, "seek: 010 prev - next 010"},
		{tr, "seek:995 - seek:005 010 prev -"},
		{empty, "next - prev - first - last - seek:x - next - prev -"},
	} {
		var cur Cursor
		cur.Reset(c.tree, rootID)
		words := strings.Fields(c.script)
		for i := 0; i < len(words); i += 2 {
			move, want := words[i], words[i+1]
			var ok bool
			switch key, seek := strings.CutPrefix(move, "seek:"); {
			case seek:
				ok = cur.Seek([]byte(key))
			case move == "next":
				ok = cur.Next()
			case move == "prev":
				ok = cur.Prev()
			case move == "first":
				ok = cur.First()
			case move == "last":
				ok = cur.Last()
			}
			require.NoError(t, cur.Err())
			require.Equal(t, ok, cur.Valid())
			got := "-"
			if ok {
				got = string(cur.Key())
			}
			require.Equal(t, want, got, "%s, move %d, %s", c.script, i/2, move)
		}
	}
}

func TestCursorNotOnARecordPanics(t *testing.T) {
	tr := newTree()
	defer tr.memory.Close()
	var c Cursor
	c.Reset(tr, rootID)
	require.Panics(t, func() { c.Key() })
	c.First()
	require.Panics(t, func() { c.Value() })
}

// TestReadsDoNotAllocate measures Get and a cursor's moves.
func TestReadsDoNotAllocate(t *testing.T) {
	tr, keys := loadRandom(t, 10_000, 1000)
	defer tr.memory.Close()
	var c Cursor
	i := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		key := keys[16*i : 16*i+16]
		i += 7
		_, found, err := Get(tr, rootID, key)
		if !found || err != nil {
			t.Error(found, err)
		}
		c.Reset(tr, rootID)
		if !c.Seek(key) || len(c.Key()) != 16 || len(c.Value()) != 100 || c.Next() && c.Prev() && len(c.Key()) != 16 {
			t.Error(c.Err())
		}
	}))
}
