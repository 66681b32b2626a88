package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// A client sends one request at a time over one connection.
type client struct {
	t       testing.TB
	g       *wire.Group
	c       wire.Conn
	number  uint64
	request uint64
	welcome protocol.Welcome
}

func dial(t testing.TB, d fabric.Domain, addr string, id, next uint64) *client {
	g, err := wire.NewGroup(d, 256)
	require.NoError(t, err)
	h := protocol.Hello{Client: id, Next: next, Shard: 0}
	c, answer, err := g.Dial(t.Context(), addr, h.Append(nil), wire.CarrierRing)
	require.NoError(t, err)
	g.Add(c)
	cl := &client{t: t, g: g, c: c, number: next - 1}
	require.NoError(t, cl.welcome.Parse(answer))
	return cl
}

func (c *client) close() { c.g.Close() }

func (c *client) do(q protocol.Request) (protocol.Status, protocol.Flags, []byte) {
	c.t.Helper()
	if q.Op.IsWrite() && q.Number == 0 {
		c.number++
		q.Number, q.Oldest = c.number, c.number
	}
	c.send(q)
	return c.answer()
}

func (c *client) put(key, value string) protocol.Status {
	s, _, _ := c.do(protocol.Request{Op: protocol.OpPut, Key: []byte(key), Value: []byte(value)})
	return s
}

func (c *client) get(key string) (string, protocol.Status) {
	s, f, b := c.do(protocol.Request{Op: protocol.OpGet, Key: []byte(key), Flags: protocol.FlagPointer})
	if s != protocol.StatusOK {
		return "", s
	}
	var it protocol.Item
	require.NoError(c.t, it.Parse(f, b))
	require.True(c.t, it.HasPointer)
	return string(it.Value), s
}

func open(t testing.TB, net *mem.Network, o Options) *Node {
	d := net.Open()
	t.Cleanup(func() { d.Close() })
	o.Listen = []Listen{{Domain: d, Addr: "node"}}
	if o.Extent == 0 {
		o.Extent = 1 << 20
	}
	n, err := Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, n.Close()) })
	return n
}

// TestLives writes, closes, opens again and reads, in each durability.
func TestLives(t *testing.T) {
	for _, mode := range []shard.Durability{shard.Memory, shard.Async, shard.Sync} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			net := mem.NewNetwork()
			dir := t.TempDir()
			d := net.Open()
			defer d.Close()
			n := open(t, net, Options{Dir: dir, Durability: mode})
			c := dial(t, d, "node", 7, 1)
			for i := range 300 {
				require.Equal(t, protocol.StatusOK, c.put(fmt.Sprint(i), fmt.Sprint("value ", i)))
			}
			for i := range 300 {
				v, s := c.get(fmt.Sprint(i))
				require.Equal(t, protocol.StatusOK, s)
				require.Equal(t, fmt.Sprint("value ", i), v)
			}
			s, _, _ := c.do(protocol.Request{Op: protocol.OpRemove, Key: []byte("5")})
			require.Equal(t, protocol.StatusOK, s)
			_, s = c.get("5")
			require.Equal(t, protocol.StatusNotFound, s)
			time.Sleep(50 * time.Millisecond) // the shard sleeps, and wakes
			_, s = c.get("6")
			require.Equal(t, protocol.StatusOK, s)
			number := c.number
			c.close()
			require.NoError(t, n.Close())
			if mode == shard.Memory {
				return
			}
			n = open(t, net, Options{Dir: dir, Durability: mode})
			c = dial(t, d, "node", 7, number+1)
			defer c.close()
			assert.EqualValues(t, 2, c.welcome.Term)
			for i := range 300 {
				v, s := c.get(fmt.Sprint(i))
				if i == 5 {
					require.Equal(t, protocol.StatusNotFound, s)
					continue
				}
				require.Equal(t, protocol.StatusOK, s)
				require.Equal(t, fmt.Sprint("value ", i), v)
			}
			s, _, _ = c.do(protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Number: number, Oldest: number})
			assert.Equal(t, protocol.StatusUnknownOutcome, s, "a number of the last life")
		})
	}
}

func TestBadOptions(t *testing.T) {
	net := mem.NewNetwork()
	d := net.Open()
	defer d.Close()
	l := []Listen{{Domain: d, Addr: "node"}}
	dir := t.TempDir()
	for _, o := range []Options{{}, {Listen: l, Durability: shard.Sync}, {Listen: l, Shards: -1}, {Listen: l, Dir: dir, Extent: 5}} {
		_, err := Open(o)
		require.Error(t, err)
		t.Log(err)
	}
	n := open(t, mem.NewNetwork(), Options{Dir: dir, Shards: 1, Durability: shard.Async})
	_, err := Open(Options{Dir: dir, Shards: 2, Listen: l})
	require.Error(t, err)
	t.Log(err)
	_, err = Open(Options{Dir: dir, Listen: l, Durability: shard.Async})
	require.Error(t, err, "the directory is in use")
	t.Log(err)
	require.NoError(t, n.Close())
}

func BenchmarkGet(b *testing.B) {
	net := mem.NewNetwork()
	n := open(b, net, Options{Durability: shard.Memory, Extent: 64 << 20})
	defer n.Close()
	d := net.Open()
	defer d.Close()
	c := dial(b, d, "node", 7, 1)
	time.Sleep(1300 * time.Millisecond)
	c.put("k", "value of some length, not more")
	b.ResetTimer()
	for b.Loop() {
		if _, s := c.get("k"); s != protocol.StatusOK {
			b.Fatal(s)
		}
	}
}
