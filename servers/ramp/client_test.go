package ramp_test

import (
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
				"local": ramp.Local(n, 4000, 0), "locking": dial(t, net, ramp.Options{Locking: true}),
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

// TestAtomic: clients of all kinds write and read the same few keys, and never see a transaction in part, nor less than what was acknowledged before.
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

// TestUncontrolled: without RAMP the same check finds transactions that were seen in part, so it would find them above.
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
