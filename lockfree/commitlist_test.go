package lockfree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// walk returns the values reachable from n, newest first.
func walk(n *Node[int]) []int {
	var values []int
	for ; n != nil; n = n.Next() {
		values = append(values, n.Value)
	}
	return values
}

func push(t testing.TB, l *List[int], values ...int) {
	t.Helper()
	for _, v := range values {
		require.True(t, l.Push(&Node[int]{Value: v}, l.Head()))
	}
}

func drain(l *List[int]) (values []int, newest *Node[int]) {
	for _, n := range l.Drain(nil) {
		values, newest = append(values, n.Value), n
	}
	return values, newest
}

func TestListDrainsInPushOrder(t *testing.T) {
	var l List[int]
	require.Nil(t, l.Head())
	require.Empty(t, l.Drain(nil))

	push(t, &l, 1, 2, 3)
	require.Equal(t, []int{3, 2, 1}, walk(l.Head()))
	values, newest := drain(&l)
	require.Equal(t, []int{1, 2, 3}, values)
	require.Same(t, l.Head(), newest, "the newest node stays as sentinel")
	require.Empty(t, l.Drain(nil))

	push(t, &l, 4, 5)
	require.Equal(t, []int{5, 4, 3, 2, 1}, walk(l.Head()), "nothing was cut")
	values, _ = drain(&l)
	require.Equal(t, []int{4, 5}, values)
}

func TestListDrainAppends(t *testing.T) {
	var l List[int]
	other := &Node[int]{Value: 9}
	push(t, &l, 1, 2)
	got := l.Drain([]*Node[int]{other})
	require.Len(t, got, 3)
	require.Same(t, other, got[0])
	require.Equal(t, 1, got[1].Value)
	require.Equal(t, 2, got[2].Value)
}

func TestListUndrain(t *testing.T) {
	var l List[int]
	push(t, &l, 1, 2, 3, 4)
	nodes := l.Drain(nil)
	l.Undrain(nodes, 2)
	l.Cut(nodes[1])
	require.Equal(t, []int{4, 3, 2}, walk(l.Head()), "the links of those given back lead on")
	push(t, &l, 5)
	values, _ := drain(&l)
	require.Equal(t, []int{3, 4, 5}, values)
	require.Empty(t, l.Drain(nil))
	require.Panics(t, func() { l.Undrain(nodes, 2) })

	push(t, &l, 6)
	nodes = l.Drain(nil)
	require.Panics(t, func() { l.Undrain(nodes, 0) })
}

func TestListPushFailsWhenHeadMoved(t *testing.T) {
	var l List[int]
	late := &Node[int]{Value: 2}
	seen := l.Head()
	push(t, &l, 1)
	require.False(t, l.Push(late, seen))
	require.Equal(t, []int{1}, walk(l.Head()))

	// Draining the list and cutting everything does not restore the old head.
	_, newest := drain(&l)
	l.Cut(newest)
	require.False(t, l.Push(late, seen))
	require.True(t, l.Push(late, l.Head()))
	require.Equal(t, []int{2, 1}, walk(l.Head()))
}

func TestListCut(t *testing.T) {
	var l List[int]
	push(t, &l, 1, 2)
	_, second := drain(&l)
	first := second.Next()
	push(t, &l, 3, 4)
	_, fourth := drain(&l)
	push(t, &l, 5)

	l.Cut(second)
	require.Equal(t, []int{5, 4, 3, 2}, walk(l.Head()), "links that are not cut stay")
	require.Nil(t, first.Next())
	l.Cut(fourth)
	require.Equal(t, []int{5, 4}, walk(l.Head()))
	require.Equal(t, []int{2}, walk(second), "a held node keeps no other")
	l.Cut(fourth)
	values, _ := drain(&l)
	require.Equal(t, []int{5}, values)
}

func TestListBrokenInvariantsPanic(t *testing.T) {
	var l List[int]
	n := &Node[int]{Value: 1}
	require.True(t, l.Push(n, nil))
	require.Panics(t, func() { l.Push(n, n) }, "head pushed onto itself")
	require.Panics(t, func() { l.Cut(n) }, "cut before drained")
	push(t, &l, 2)
	drain(&l)
	require.True(t, l.Push(n, l.Head()))
	require.Panics(t, func() { l.Drain(nil) }, "drained node pushed again")
}

func TestListDoesNotAllocate(t *testing.T) {
	const runs, each = 100, 8
	var l List[int]
	nodes := make([]Node[int], (runs+1)*each) // AllocsPerRun runs once more
	buf := make([]*Node[int], 0, each)
	require.Zero(t, testing.AllocsPerRun(runs, func() {
		for range each {
			l.Push(&nodes[0], l.Head())
			nodes = nodes[1:]
		}
		buf = l.Drain(buf[:0])
		l.Cut(buf[each-1])
	}))
}

func BenchmarkListPushDrainCut(b *testing.B) {
	const batch = 64
	var l List[int]
	buf := make([]*Node[int], 0, batch)
	var nodes []Node[int]
	for i := range b.N {
		if len(nodes) == 0 {
			nodes = make([]Node[int], 1024)
		}
		l.Push(&nodes[0], l.Head())
		nodes = nodes[1:]
		if i%batch == batch-1 {
			buf = l.Drain(buf[:0])
			l.Cut(buf[batch-1])
		}
	}
}
