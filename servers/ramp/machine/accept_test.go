package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNumbers: no two clients have the same number, as long as one of them is connected or was so lately; a client keeps its number.
func TestNumbers(t *testing.T) {
	var x numbers
	x.init()
	now := time.Now()
	holds := map[uint16]uint64{}
	give := func(client uint64, has uint16) (uint16, func()) {
		n, release, err := x.give(client, has, now)
		require.NoError(t, err)
		require.Less(t, n, uint16(OwnNumber))
		if o, ok := holds[n]; ok {
			require.Equal(t, o, client, "number %d", n)
		}
		holds[n] = client
		return n, release
	}
	first, release := give(1, 1<<16-1)
	other, _ := give(1, first)
	require.Equal(t, first, other)
	n, _ := give(2, first)
	require.NotEqual(t, first, n, "it is client 1's")
	for _, has := range []uint16{first, 77, 1<<16 - 1} { // whatever it believes to have, a client has one number
		again, _ := give(2, has)
		require.Equal(t, n, again)
	}
	for c := uint64(3); len(holds) < OwnNumber; c++ {
		give(c, OwnNumber)
	}
	_, _, err := x.give(9999, 0, now.Add(time.Hour))
	require.Error(t, err, "all are connected")
	release()
	release()
	_, _, err = x.give(9999, 0, now.Add(time.Hour))
	require.Error(t, err, "client 1 has two connections")
	again, release := give(1, 0)
	require.Equal(t, first, again)
	release()
	x.of[first].conns, x.of[first].left = 0, now
	_, _, err = x.give(9999, 0, now.Add(9*time.Minute))
	require.Error(t, err)
	now = now.Add(11 * time.Minute)
	delete(holds, first)
	again, _ = give(9999, 0)
	require.Equal(t, first, again)
	_, _, err = x.give(1, first, now)
	require.Error(t, err, "it is another client's now")
}
