package hydra

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/machine"
	served "flashdbm/servers/shard"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/require"
)

// A cluster is a node and a client in this process.
type cluster struct {
	t    testing.TB
	net  *mem.Network
	o    machine.Options
	node *machine.Node
	c    *Client
	dom  *mem.Domain
	ctx  context.Context
}

func newCluster(t testing.TB, shards int, o *Options) *cluster {
	k := &cluster{t: t, net: mem.NewNetwork(), ctx: context.Background()}
	k.o = machine.Options{Shards: shards, Durability: served.Memory, Extent: 8 << 20}
	k.start(o)
	return k
}

// newClusterOf returns a cluster in a mode; in modes other than memory it has files.
func newClusterOf(t testing.TB, shards int, mode served.Durability) *cluster {
	k := &cluster{t: t, net: mem.NewNetwork(), ctx: context.Background()}
	k.o = machine.Options{Shards: shards, Durability: mode, Extent: 8 << 20}
	if mode != served.Memory {
		k.o.Dir = t.TempDir()
	}
	k.start(nil)
	return k
}

func (k *cluster) start(o *Options) {
	t := k.t
	k.startNode()
	k.c = k.dial(o)
	t.Cleanup(func() {
		require.NoError(t, k.c.Close())
		k.stopNode()
	})
}

func (k *cluster) startNode() {
	k.dom = k.net.Open()
	k.o.Listen = []machine.Listen{{Domain: k.dom, Addr: "node", Public: "mem:node"}}
	var err error
	k.node, err = machine.Open(k.o)
	require.NoError(k.t, err)
}

func (k *cluster) stopNode() {
	require.NoError(k.t, k.node.Close())
	require.NoError(k.t, k.dom.Close())
}

func (k *cluster) dial(o *Options) *Client {
	if o == nil {
		o = &Options{}
	}
	with := *o
	d := k.net.Open()
	with.Fabrics = map[string]fabric.Domain{"mem": d}
	k.t.Cleanup(func() { d.Close() })
	ctx, cancel := context.WithTimeout(k.ctx, 30*time.Second)
	defer cancel()
	c, err := Dial(ctx, []string{"mem:node"}, &with)
	require.NoError(k.t, err)
	return c
}

// local returns a client that calls the node by function calls.
func (k *cluster) local(o *Options) *Client {
	c, err := Local(k.node, o)
	require.NoError(k.t, err)
	k.t.Cleanup(func() { require.NoError(k.t, c.Close()) })
	return c
}

func TestOperations(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierRing, wire.CarrierSend, 0} {
		name := carrier.String()
		if carrier == 0 {
			name = "local"
		}
		t.Run(name, func(t *testing.T) {
			k := newCluster(t, 2, &Options{Carrier: carrier})
			c, ctx := k.c, k.ctx
			if carrier == 0 {
				c = k.local(nil)
			}
			_, err := c.Get(ctx, []byte("a"))
			require.ErrorIs(t, err, ErrNotFound)
			v1, err := c.Put(ctx, []byte("a"), []byte("one"))
			require.NoError(t, err)
			got, err := c.Get(ctx, []byte("a"))
			require.NoError(t, err)
			require.Equal(t, "one", string(got))
			at, err := c.Insert(ctx, []byte("a"), []byte("two"))
			require.ErrorIs(t, err, ErrExists)
			require.Equal(t, v1, at)
			_, err = c.Update(ctx, []byte("b"), []byte("two"))
			require.ErrorIs(t, err, ErrNotFound)
			v2, err := c.Update(ctx, []byte("a"), []byte("two"))
			require.NoError(t, err)
			require.Greater(t, v2, v1)
			_, err = c.CompareAndSet(ctx, []byte("a"), v1, []byte("three"))
			require.ErrorIs(t, err, ErrVersion)
			v3, err := c.CompareAndSet(ctx, []byte("a"), v2, []byte("three"))
			require.NoError(t, err)
			i, err := c.GetItem(ctx, []byte("a"))
			require.NoError(t, err)
			require.Equal(t, Item{Value: []byte("three"), Version: v3}, i)
			require.ErrorIs(t, c.CompareAndDelete(ctx, []byte("a"), v2), ErrVersion)
			require.NoError(t, c.CompareAndDelete(ctx, []byte("a"), v3))
			require.ErrorIs(t, c.Delete(ctx, []byte("a")), ErrNotFound)
			_, err = c.CompareAndSet(ctx, []byte("a"), 0, []byte("four"))
			require.NoError(t, err)
			require.NoError(t, c.Delete(ctx, []byte("a")))

			sum, err := c.Add(ctx, []byte("n"), 5)
			require.NoError(t, err)
			require.EqualValues(t, 5, sum)
			sum, err = c.Add(ctx, []byte("n"), -7)
			require.NoError(t, err)
			require.EqualValues(t, -2, sum)
			_, err = c.Put(ctx, []byte("n"), []byte("x"))
			require.NoError(t, err)
			_, err = c.Add(ctx, []byte("n"), 1)
			require.ErrorIs(t, err, ErrNotNumber)

			_, err = c.Put(ctx, []byte("short"), []byte("x"), In(time.Minute))
			require.NoError(t, err)
			i, err = c.GetItem(ctx, []byte("short"))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(time.Minute), i.Expiry, 30*time.Second)
			_, err = c.Put(ctx, []byte("short"), []byte("x"), In(50*time.Millisecond))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := c.Get(ctx, []byte("short"))
				return err != nil
			}, time.Minute, time.Millisecond)

			_, err = c.Put(ctx, make([]byte, MaxKey+1), nil)
			require.ErrorIs(t, err, ErrTooLarge)
			_, err = c.Put(ctx, make([]byte, MaxLargeKey+1), make([]byte, MaxValue+1))
			require.ErrorIs(t, err, ErrTooLarge)
		})
	}
}

func TestSizes(t *testing.T) {
	k := newCluster(t, 1, nil)
	testSizes(t, k, k.c)
	testSizes(t, k, k.local(nil))
}

func testSizes(t *testing.T, k *cluster, c *Client) {
	for _, n := range []int{0, 1, 100, 16 << 10, 16<<10 + 1, 100_000, 1 << 20, MaxValue} {
		value := bytes.Repeat([]byte{byte(n), 1}, n/2+1)[:n]
		key := bytes.Repeat([]byte("k"), max(1, min(n/10, MaxKey)))
		_, err := c.Put(k.ctx, key, value)
		require.NoError(t, err, "%d", n)
		for range 3 {
			got, err := c.Get(k.ctx, key)
			require.NoError(t, err, "%d", n)
			require.True(t, bytes.Equal(value, got), "%d", n)
		}
	}
}

// TestOneSided reads the same keys again and again: nearly all GETs are Reads without the shard.
func TestOneSided(t *testing.T) {
	k := newCluster(t, 1, nil)
	for i := range 100 {
		_, err := k.c.Put(k.ctx, fmt.Append(nil, "key", i), fmt.Append(nil, "value", i))
		require.NoError(t, err)
	}
	before := k.c.Stats()
	for range 100 {
		for i := range 100 {
			got, err := k.c.Get(k.ctx, fmt.Append(nil, "key", i))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("value", i), string(got))
		}
	}
	after := k.c.Stats()
	require.Greater(t, after.OneSided-before.OneSided, uint64(9000))
	require.Less(t, after.Messages-before.Messages, uint64(1000))

	other := k.dial(nil)
	defer other.Close()
	for i, x := range []struct {
		writer  *Client
		refused uint64
		why     string
	}{
		{other, 1, "a pointer to what another client has overwritten proves nothing"},
		{k.c, 0, "a client does not Read what it has overwritten itself"},
	} {
		before := k.c.Stats().Refused
		_, err := x.writer.Put(k.ctx, []byte("key1"), fmt.Append(nil, "new", i))
		require.NoError(t, err)
		got, err := k.c.Get(k.ctx, []byte("key1"))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("new", i), string(got))
		require.Equal(t, x.refused, k.c.Stats().Refused-before, x.why)
	}
}

func TestBatchAndScan(t *testing.T) {
	k := newCluster(t, 3, nil)
	testBatchAndScan(t, k, k.c)
	testBatchAndScan(t, k, k.local(nil))
}

func testBatchAndScan(t *testing.T, k *cluster, c *Client) {
	const n = 3000
	list := make([]Request, n)
	for i := range list {
		list[i] = Request{Kind: Put, Key: fmt.Append(nil, "key", i), Value: fmt.Append(nil, "value", i)}
	}
	require.NoError(t, c.Batch(k.ctx, list))
	for i := range list {
		list[i].Kind = Get
	}
	list[7].Key = []byte("none")
	require.ErrorIs(t, c.Batch(k.ctx, list), ErrNotFound)
	for i := range list {
		if i != 7 {
			require.NoError(t, list[i].Err)
			require.Equal(t, fmt.Sprint("value", i), string(list[i].Item.Value))
		}
	}
	for _, o := range []*ScanOptions{nil, {KeysOnly: true}, {Limit: 10}} {
		seen := map[string]string{}
		for e, err := range c.Scan(k.ctx, o) {
			require.NoError(t, err)
			_, twice := seen[string(e.Key)] // NotContains compares with each key of the map
			require.False(t, twice)
			seen[string(e.Key)] = string(e.Value)
		}
		require.Len(t, seen, n)
		if o == nil || !o.KeysOnly {
			require.Equal(t, "value7", seen["key7"])
		}
	}
}

// TestLargeBatch asks in one Batch for values that do not fit into one answer together. The writes beside them are
// applied once each.
func TestLargeBatch(t *testing.T) {
	k := newCluster(t, 1, &Options{Pointers: -1})
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i), 1}, MaxValue/3) }
	for i := range 4 {
		_, err := k.c.Put(k.ctx, fmt.Append(nil, "large", i), value(i))
		require.NoError(t, err)
	}
	var list []Request
	for i := range 4 {
		list = append(list, Request{Kind: Get, Key: fmt.Append(nil, "large", i)}, Request{Kind: Add, Key: []byte("sum"), N: 1})
	}
	before := k.c.Stats().Messages
	require.NoError(t, k.c.Batch(k.ctx, list))
	for i := range 4 {
		require.True(t, bytes.Equal(value(i), list[2*i].Item.Value), "%d", i)
	}
	require.EqualValues(t, 1+3, k.c.Stats().Messages-before, "one BATCH, and three values that did not fit")
	sum, err := k.c.Get(k.ctx, []byte("sum"))
	require.NoError(t, err)
	require.Equal(t, "4", string(sum))
}

// TestManyGoroutines counts with ADD from many goroutines, beside GETs of values that name their keys: nothing is
// lost, done twice, or mixed up.
func TestManyGoroutines(t *testing.T) {
	for _, carrier := range []wire.Carrier{wire.CarrierRing, wire.CarrierSend} {
		k := newCluster(t, 2, &Options{Carrier: carrier})
		const goroutines, keys = 20, 50
		rounds := 300
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 3))
				for i := range rounds {
					_, err := k.c.Add(k.ctx, []byte("counter"), 1)
					if err != nil {
						t.Error(err)
						return
					}
					key := fmt.Append(nil, "key", r.IntN(keys))
					if r.IntN(4) == 0 {
						if _, err := k.c.Put(k.ctx, key, fmt.Appendf(nil, "%s is %d of %d", key, i, g)); err != nil {
							t.Error(err)
						}
						continue
					}
					got, err := k.c.Get(k.ctx, key)
					if err == nil && !bytes.HasPrefix(got, fmt.Appendf(nil, "%s is ", key)) {
						t.Errorf("%s has %q", key, got)
					}
				}
			})
		}
		wg.Wait()
		sum, err := k.c.Add(k.ctx, []byte("counter"), 0)
		require.NoError(t, err)
		require.EqualValues(t, goroutines*rounds, sum)
	}
}

// TestContexts ends contexts at random moments. Every call returns soon, and its error says what is known.
func TestContexts(t *testing.T) {
	k := newCluster(t, 1, nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithTimeout(k.ctx, time.Duration(i*g%50)*time.Microsecond)
				_, err := k.c.Put(ctx, []byte("key"), []byte("value"))
				cancel()
				if err != nil {
					if !isEither(err, ErrUnavailable, ErrUnknownOutcome) || !isEither(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	_, err := k.c.Get(k.ctx, []byte("key"))
	require.True(t, err == nil || isEither(err, ErrNotFound))
}

// TestWithdrawnWhileTaken ends a context between two steps of the driver, after it has taken submitted calls and
// before it starts them: the call must not return while the driver has yet to start it.
func TestWithdrawnWhileTaken(t *testing.T) {
	k := newCluster(t, 1, nil)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithCancel(k.ctx)
				cancel()
				k.c.Get(ctx, []byte("key"))
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	k.c.do(func(e *engine) {
		n := 0
		for c := e.live.newer; c != &e.live; c = c.newer {
			if n++; n > 100 || c.older == nil || c.waiter == nil {
				t.Errorf("the engine has a call of nobody")
				break
			}
		}
	})
}
