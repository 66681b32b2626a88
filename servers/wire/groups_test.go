package wire

import (
	"testing"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"

	"github.com/stretchr/testify/require"
)

// TestGroupsSleep: an event that wakes the group of any domain ends the thread's sleep, once. A thread without domains
// can be woken too.
func TestGroupsSleep(t *testing.T) {
	first, second := mem.NewNetwork().Open(), mem.NewNetwork().Open()
	defer first.Close()
	defer second.Close()
	for _, domains := range [][]fabric.Domain{nil, {first}, {first, second, first}} {
		s, err := NewGroups(domains, 16)
		require.NoError(t, err)
		require.False(t, s.Sleep(time.Millisecond))
		wakes := []func(){s.Wake}
		for _, d := range domains {
			wakes = append(wakes, s.At(d).Wake)
		}
		for i, wake := range wakes {
			wake()
			require.True(t, s.Sleep(5*time.Second), "%d domains, woken by %d", len(domains), i)
			for s.Sleep(time.Millisecond) { // the wake-up of another group may come once more, late
			}
		}
		require.NoError(t, s.Close())
	}
}
