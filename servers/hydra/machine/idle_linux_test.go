package machine

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
)

// TestIdle: a node without work, with a connection, a file and items that expire later, takes hardly any processor
// time.
func TestIdle(t *testing.T) {
	net := mem.NewNetwork()
	n := open(t, net, Options{Dir: t.TempDir(), Durability: shard.Async})
	d := net.Open()
	defer d.Close()
	c := dial(t, d, "node", 1, 1)
	defer c.close()
	s, _, _ := c.do(protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Flags: protocol.FlagRelative, Expiry: 3_600_000})
	require.Equal(t, protocol.StatusOK, s)
	require.NoError(t, n.Err())
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	time.Sleep(300 * time.Millisecond) // the file is synced
	share := 1.0
	for range 3 { // the garbage of other tests may be collected meanwhile
		before := used()
		time.Sleep(time.Second)
		share = min(share, (used() - before).Seconds())
	}
	t.Logf("%.2f %% of a processor", 100*share)
	assert.Less(t, share, 0.01)
}
