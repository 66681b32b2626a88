package mvcc

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/btree"
	"flashdbm/internal/redo"
)

// TestFeed: the feed returns the keys of a group and of later ones, or reports that it cannot. It drops the oldest
// groups when it gets too long and, before anybody has asked, those that a flush has written.
func TestFeed(t *testing.T) {
	group := func(no uint64, n int) followedGroup {
		g := followedGroup{no: no}
		for i := range n {
			g.ops = append(g.ops, btree.Op{Key: fmt.Appendf(nil, "%d", (no+uint64(i))%10)})
		}
		return g
	}
	tells := func(f *feed, since uint64, want string) {
		t.Helper()
		keys, ok := f.since(since)
		if require.Equal(t, want != "-", ok); ok {
			require.Equal(t, want, fmt.Sprintf("%s", keys))
		}
	}
	var f feed
	f.beginAnew(3)
	for no := range uint64(5) {
		f.note(group(4+no, 2))
	}
	f.flushed(5)
	tells(&f, 5, "-")
	tells(&f, 6, "[6 7 8 9]")
	f.note(group(8, 3)) // the same group with more keys
	tells(&f, 8, "[0 8 9]")
	f.flushed(8)
	tells(&f, 6, "[0 6 7 8 9]") // somebody has asked
	f.note(followedGroup{no: 9, ranges: []redo.Range{{}}})
	tells(&f, 8, "-")
	tells(&f, 9, "-") // a token of group 9 may cover only part of it
	tells(&f, 10, "[]")
	f.note(group(10, mostFed/2))
	f.note(group(11, mostFed/2))
	tells(&f, 10, "[0 1 2 3 4 5 6 7 8 9]")
	f.note(group(12, 1))
	tells(&f, 10, "-")
	tells(&f, 12, "[2]")
	f.note(group(13, mostFed+1))
	tells(&f, 13, "-")
	tells(&f, 14, "[]")
}
