package ramp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/ramp"
	"flashdbm/servers/ramp/machine"
	"flashdbm/servers/ramp/partition"
	"flashdbm/servers/wire"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var checkTime = flag.Duration("check.time", 300*time.Millisecond, "how long TestAtomic writes and reads with each of its settings")

// open starts a node that listens at "node" of a network within the process.
func open(t *testing.T, o machine.Options) (*machine.Node, *mem.Network) {
	net := mem.NewNetwork()
	d := net.Open()
	o.Listen = []machine.Listen{{Domain: d, Addr: "node"}}
	if o.Extent == 0 {
		o.Extent = 16 << 20
	}
	n, err := machine.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, n.Close())
		assert.NoError(t, d.Close())
	})
	return n, net
}

func dial(t *testing.T, net *mem.Network, o ramp.Options) *ramp.Client {
	d := net.Open()
	o.Fabrics = map[string]fabric.Domain{"mem": d}
	c, err := ramp.Dial(context.Background(), []string{"mem:node"}, &o)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, d.Close())
	})
	return c
}

func TestPutAndGet(t *testing.T) {
	for _, mode := range []partition.Durability{partition.Memory, partition.Async, partition.Sync} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			n, net := open(t, machine.Options{Dir: t.TempDir(), Partitions: 3, Durability: mode})
			clients := map[string]interface {
				PutAll(context.Context, []ramp.Pair) (ramp.Timestamp, error)
				GetAll(context.Context, [][]byte) ([]ramp.Value, error)
			}{
				"messages": dial(t, net, ramp.Options{}), "send": dial(t, net, ramp.Options{Carrier: wire.CarrierSend}),
				"local": ramp.Local(n, 0), "locking": dial(t, net, ramp.Options{Locking: true}),
			}
			for name, c := range clients {
				ctx := context.Background()
				var pairs []ramp.Pair
				var keys [][]byte
				for i := range 20 {
					k := fmt.Appendf(nil, "%s-%d", name, i)
					keys = append(keys, k)
					pairs = append(pairs, ramp.Pair{Key: k, Value: fmt.Appendf(nil, "value-%d", i)})
				}
				values, err := c.GetAll(ctx, keys)
				require.NoError(t, err)
				for _, v := range values {
					require.False(t, v.Found)
				}
				ts, err := c.PutAll(ctx, pairs)
				require.NoError(t, err)
				for range 3 { // by message, then by Reads
					values, err = c.GetAll(ctx, keys)
					require.NoError(t, err)
					for i, v := range values {
						require.Equal(t, ramp.Value{Value: pairs[i].Value, Found: true, TS: ts}, v)
					}
				}
				pairs[3].Remove, pairs[4].Value = true, []byte{}
				later, err := c.PutAll(ctx, append(pairs[2:5:5], pairs[4]))
				require.NoError(t, err)
				require.Greater(t, later, ts)
				values, err = c.GetAll(ctx, append(keys[2:5:5], keys[4]))
				require.NoError(t, err)
				require.Equal(t, []ramp.Value{
					{Value: pairs[2].Value, Found: true, TS: later}, {TS: later}, {Value: []byte{}, Found: true, TS: later}, {Value: []byte{}, Found: true, TS: later},
				}, values)
			}
		})
	}
}

// TestAtomic: clients of all kinds write and read the same few keys. They never see a transaction in part, nor an
// older version than one that was acknowledged before.
func TestAtomic(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for _, x := range []struct {
		name string
		o    ramp.Options
	}{
		{"GET*", ramp.Options{}}, {"GET+", ramp.Options{Slots: -1}}, {"Small", ramp.Options{Algorithm: ramp.Small}}, {"Hybrid", ramp.Options{Algorithm: ramp.Hybrid}},
		{"Sends", ramp.Options{Carrier: wire.CarrierSend}}, {"two-phase locking", ramp.Options{Locking: true}},
	} {
		t.Run(x.name, func(t *testing.T) {
			n, net := open(t, machine.Options{Partitions: 3})
			a, b := dial(t, net, x.o), dial(t, net, x.o)
			time.Sleep(10 * time.Millisecond)
			var puts, gets, bad atomic.Int64
			stress(t, *checkTime, []stressed{a, b}, &puts, &gets, &bad)
			s := b.Stats()
			t.Logf("%d puts, %d gets; %+v", puts.Load(), gets.Load(), s)
			require.Zero(t, bad.Load(), "fractured or lost")
			require.Positive(t, puts.Load())
			require.Positive(t, gets.Load())
			_ = n
		})
	}
}

type stressed interface {
	PutAll(context.Context, []ramp.Pair) (ramp.Timestamp, error)
	GetAll(context.Context, [][]byte) ([]ramp.Value, error)
}

const stressKeys = 12

// stress has each client write and read for a time. A value has a bit for each key of its transaction.
func stress(t *testing.T, d time.Duration, clients []stressed, puts, gets, bad *atomic.Int64) {
	var wait sync.WaitGroup
	var acked [stressKeys]atomic.Uint64
	ctx, cancel := context.WithTimeout(context.Background(), d+30*time.Second)
	defer cancel()
	end := time.Now().Add(d)
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%d", i) }
	for i := range 2 * len(clients) {
		c, r := clients[i/2], rand.New(rand.NewPCG(7, uint64(i)))
		wait.Go(func() {
			for time.Now().Before(end) {
				chosen := r.Perm(stressKeys)[:1+r.IntN(6)]
				if i%2 == 0 {
					bits := uint64(0)
					for _, k := range chosen {
						bits |= 1 << k
					}
					var pairs []ramp.Pair
					for _, k := range chosen {
						pairs = append(pairs, ramp.Pair{Key: key(k), Value: binary.LittleEndian.AppendUint64(make([]byte, 0, 100+r.IntN(50)), bits)})
					}
					ts, err := c.PutAll(ctx, pairs)
					if !assert.NoError(t, err) {
						return
					}
					puts.Add(1)
					for _, k := range chosen {
						for {
							if was := acked[k].Load(); was >= uint64(ts) || acked[k].CompareAndSwap(was, uint64(ts)) {
								break
							}
						}
					}
					continue
				}
				var keys [][]byte
				var least []uint64
				for _, k := range chosen {
					keys, least = append(keys, key(k)), append(least, acked[k].Load())
				}
				values, err := c.GetAll(ctx, keys)
				if !assert.NoError(t, err) {
					return
				}
				gets.Add(1)
				for i, v := range values {
					if uint64(v.TS) < least[i] {
						bad.Add(1)
					}
					if !v.Found {
						continue
					}
					bits := binary.LittleEndian.Uint64(v.Value)
					for j, k := range chosen {
						if bits>>k&1 != 0 && values[j].TS < v.TS {
							bad.Add(1)
						}
					}
				}
			}
		})
	}
	wait.Wait()
}

// TestUncontrolled: without RAMP the same check finds transactions that were seen in part. So it would find them in
// TestAtomic.
func TestUncontrolled(t *testing.T) {
	_, net := open(t, machine.Options{Partitions: 3})
	o := ramp.Options{Algorithm: ramp.Uncontrolled}
	a, b := dial(t, net, o), dial(t, net, o)
	var puts, gets, bad atomic.Int64
	for range 200 {
		if stress(t, 100*time.Millisecond, []stressed{a, b}, &puts, &gets, &bad); bad.Load() > 0 {
			break
		}
	}
	t.Logf("%d puts, %d gets, %d fractured", puts.Load(), gets.Load(), bad.Load())
	require.Positive(t, bad.Load())
}

// TestLargerThanMemory: a table has more than twice the memory of its partitions. Transactions of some keys work, and
// so does a read of all keys at once, which its client divides into parts.
func TestLargerThanMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	n, net := open(t, machine.Options{Dir: t.TempDir(), Partitions: 2, Durability: partition.Sync, Extent: 256 << 10, Memory: 256 << 10})
	c, local := dial(t, net, ramp.Options{}), ramp.Local(n, 0)
	ctx := context.Background()
	var keys [][]byte
	for i := range 100 {
		keys = append(keys, fmt.Appendf(nil, "key-%d", i))
	}
	value := func(i, round int) []byte { return bytes.Repeat([]byte{byte(i), byte(round)}, 6000) }
	last := func(i int) int { return max(0, 1-i/16) } // the second round writes 16 keys again
	for round := range 2 {
		for i := 0; i < len(keys) && last(i) >= round; i += 4 {
			var pairs []ramp.Pair
			for j := i; j < i+4; j++ {
				pairs = append(pairs, ramp.Pair{Key: keys[j], Value: value(j, round)})
			}
			for {
				_, err := []stressed{c, local}[i/4%2].PutAll(ctx, pairs)
				if err == nil {
					break
				}
				require.ErrorIs(t, err, ramp.ErrFull) // until overtaken versions are dropped, and the file has the others
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	check := func(values []ramp.Value, err error, first int) {
		require.NoError(t, err)
		for i, v := range values {
			require.True(t, v.Found)
			require.Equal(t, value(first+i, last(first+i)), v.Value, "key %d", first+i)
		}
	}
	for _, x := range []stressed{c, local} {
		for i := 0; i < len(keys); i += 5 {
			values, err := x.GetAll(ctx, keys[i:i+5])
			check(values, err, i)
		}
		values, err := x.GetAll(ctx, keys)
		check(values, err, 0)
	}
	evictions, fetches := uint64(0), uint64(0)
	for _, p := range n.Status().Partitions {
		evictions, fetches = evictions+p.Evictions, fetches+p.Fetches
	}
	require.Greater(t, evictions, uint64(80))
	require.Less(t, fetches, uint64(5000), "keys do not evict each other for ever")
	t.Logf("%d evictions, %d fetches", evictions, fetches)
}

// TestSecondAddress: the first address is of another fabric and does not answer. The client uses the second address,
// and connects to it again after the connection was lost.
func TestSecondAddress(t *testing.T) {
	dir := t.TempDir()
	net := mem.NewNetwork()
	o := machine.Options{Dir: dir, Partitions: 2, Durability: partition.Sync, Extent: 1 << 20}
	start := func() *machine.Node {
		d := net.Open()
		t.Cleanup(func() { assert.NoError(t, d.Close()) })
		o.Listen = []machine.Listen{{Domain: d, Addr: "node"}}
		n, err := machine.Open(o)
		require.NoError(t, err)
		return n
	}
	n := start()
	nowhere, d := mem.NewNetwork().Open(), net.Open()
	defer d.Close()
	defer nowhere.Close()
	ctx := context.Background()
	c, err := ramp.Dial(ctx, []string{"nowhere:node", "mem:node"}, &ramp.Options{Fabrics: map[string]fabric.Domain{"nowhere": nowhere, "mem": d}})
	require.NoError(t, err)
	defer c.Close()
	pairs := []ramp.Pair{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte("1")}, {Key: []byte("c"), Value: []byte("1")}}
	ts, err := c.PutAll(ctx, pairs)
	require.NoError(t, err)
	require.NoError(t, n.Close())
	n = start()
	defer n.Close()
	values, err := c.GetAll(ctx, [][]byte{pairs[0].Key, pairs[2].Key})
	require.NoError(t, err)
	require.Equal(t, []ramp.Value{{Value: []byte("1"), Found: true, TS: ts}, {Value: []byte("1"), Found: true, TS: ts}}, values)
}

// TestSecret dials a table without a secret, with none and with an empty one, and a table that has a secret with the
// right one, another one, an empty one and none.
func TestSecret(t *testing.T) {
	t.Parallel()
	for _, secret := range [][]byte{nil, []byte("secret")} {
		_, net := open(t, machine.Options{Partitions: 1, Durability: partition.Memory, Secret: secret})
		try := func(own []byte) error {
			d := net.Open()
			defer d.Close()
			c, err := ramp.Dial(t.Context(), []string{"mem:node"}, &ramp.Options{Secret: own, Timeout: time.Minute, Fabrics: map[string]fabric.Domain{"mem": d}})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.PutAll(t.Context(), []ramp.Pair{{Key: []byte("key"), Value: []byte("v")}})
			return err
		}
		require.NoError(t, try(secret))
		require.ErrorIs(t, try([]byte("another")), ramp.ErrDenied)
		for _, none := range [][]byte{nil, {}} {
			if err := try(none); secret == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ramp.ErrDenied)
			}
		}
	}
}
