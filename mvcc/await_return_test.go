package mvcc

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/lockfree"
)

// TestAwaitReturn: a leader waits until as many committers are back as are expected. It does not wait if commits are
// not synced, nor longer than a sync takes, nor for committers that do not come.
func TestAwaitReturn(t *testing.T) {
	var list lockfree.List[pushedCommit]
	push := func(n int) {
		for range n {
			require.True(t, list.Push(new(commitNode), list.Head()))
		}
	}
	push(5)
	list.Drain(nil)
	push(1)
	const back = 4
	begun := time.Now()
	awaitReturn(&list, back, 0, patience)
	awaitReturn(&list, 1, patience, patience)
	require.Less(t, time.Since(begun), patience/4, "waits for nothing")

	begun = time.Now()
	awaitReturn(&list, back, 2*time.Millisecond, patience)
	require.GreaterOrEqual(t, time.Since(begun), 2*time.Millisecond, "does not wait")
	awaitReturn(&list, back, patience, 2*time.Millisecond)
	require.Less(t, time.Since(begun), patience/4, "waits for those who do not come")

	go push(back - 1)
	begun = time.Now()
	awaitReturn(&list, back, patience, patience)
	require.Less(t, time.Since(begun), patience/4, "waits for more than are expected")
	require.EqualValues(t, 5+back, list.Head().Number())
}

// TestAwaitReturnWithoutAClock: the wait also ends if the clock does not advance because the leader does not sleep.
func TestAwaitReturnWithoutAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list lockfree.List[pushedCommit]
		require.True(t, list.Push(new(commitNode), nil))
		awaitReturn(&list, 2, time.Second, time.Second)
	})
}
