package hydra

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"flashdbm/servers/circle"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/hydra/protocol"
	served "flashdbm/servers/shard"
)

// long returns a value whose chunks differ from each other and from those of other numbers.
func long(n int, number uint64) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 512 {
		binary.LittleEndian.PutUint64(b[i:], number<<32+uint64(i))
	}
	return b
}

// parts returns how many chunks there are in the shards.
func (k *cluster) parts() (n int) {
	for cursor, more := uint64(0), true; more; {
		var page []Entry
		var err error
		page, cursor, more, err = k.c.scanPage(k.ctx, cursor, nil)
		require.NoError(k.t, err)
		for _, e := range page {
			if e.flags&protocol.ItemChunk != 0 {
				require.Empty(k.t, e.Value)
				n++
			}
		}
	}
	return n
}

// TestLarge writes and reads values above MaxValue by every operation. However such a value ends, its chunks end with
// it.
func TestLarge(t *testing.T) {
	for _, mode := range []served.Durability{served.Memory, served.Async, served.Sync} {
		for _, way := range []string{"messages", "calls"} {
			if (way == "calls") != (mode == served.Sync) || testing.Short() && mode != served.Memory {
				continue
			}
			t.Run(mode.String()+"/"+way, func(t *testing.T) {
				k := newClusterOf(t, 2, mode)
				c := k.c
				if way == "calls" {
					c = k.local(nil)
				}
				testLarge(t, k, c)
			})
		}
	}
}

// awaitParts waits until there are n chunks. The chunks of a replaced value are removed after the write, which may be
// answered before that in sync mode.
func (k *cluster) awaitParts(n int, why string) {
	require.Eventually(k.t, func() bool { return k.parts() == n }, time.Minute, time.Millisecond, why)
}

func testLarge(t *testing.T, k *cluster, c *Client) {
	ctx, key := k.ctx, []byte("key")
	value := long(2*MaxValue+5, 1)
	version, err := c.Put(ctx, key, value)
	require.NoError(t, err)
	require.Equal(t, 3, k.parts())
	got, err := c.GetInto(ctx, key, []byte("before"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(append([]byte("before"), value...), got))
	i, err := c.GetItem(ctx, key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, i.Value))
	require.Equal(t, version, i.Version)

	_, err = c.Insert(ctx, key, value)
	require.ErrorIs(t, err, ErrExists)
	_, err = c.Update(ctx, []byte("other"), value)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = c.CompareAndSet(ctx, key, version-1, value)
	require.ErrorIs(t, err, ErrVersion)
	_, err = c.Add(ctx, key, 1)
	require.ErrorIs(t, err, ErrNotNumber)
	k.awaitParts(3, "those of writes that were refused are removed")

	value = long(MaxValue+1, 2)
	version, err = c.CompareAndSet(ctx, key, version, value)
	require.NoError(t, err)
	k.awaitParts(2, "those of the value that was replaced are removed")
	list := []Request{
		{Kind: Get, Key: key}, {Kind: Put, Key: []byte("short"), Value: []byte("s")}, {Kind: Insert, Key: []byte("two"), Value: long(MaxValue+9, 3)},
		{Kind: Get, Key: []byte("none")}, {Kind: Update, Key: []byte("none"), Value: value}, {Kind: Get, Key: key, Value: value},
	}
	require.ErrorIs(t, c.Batch(ctx, list), ErrNotFound)
	require.True(t, bytes.Equal(value, list[0].Item.Value))
	require.Equal(t, version, list[0].Item.Version)
	require.NoError(t, list[1].Err)
	require.NoError(t, list[2].Err)
	require.ErrorIs(t, list[3].Err, ErrNotFound)
	require.ErrorIs(t, list[4].Err, ErrNotFound)
	k.awaitParts(4, "those of the update that was refused are removed")

	for _, keysOnly := range []bool{true, false} {
		seen := map[string]int{}
		for e, err := range c.Scan(ctx, &ScanOptions{KeysOnly: keysOnly}) {
			require.NoError(t, err)
			seen[string(e.Key)] = len(e.Value)
		}
		want := map[string]int{"key": MaxValue + 1, "short": 1, "two": MaxValue + 9}
		if keysOnly {
			want = map[string]int{"key": len(seen), "short": len(seen), "two": len(seen)}
			for s := range seen {
				seen[s] = len(seen)
			}
		}
		require.Equal(t, want, seen)
	}

	_, err = c.Put(ctx, key, []byte("short again"))
	require.NoError(t, err)
	k.awaitParts(2, "a short value replaces a long one")
	require.NoError(t, c.Delete(ctx, []byte("two")))
	k.awaitParts(0, "a long value is deleted")
	_, err = c.Put(ctx, key, value, In(300*time.Millisecond))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return k.parts() == 0 }, time.Minute, 10*time.Millisecond, "an expired value's chunks are removed")
	_, err = c.Get(ctx, key)
	require.ErrorIs(t, err, ErrNotFound)

	_, err = c.Put(ctx, make([]byte, MaxLargeKey+1), value)
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = c.Put(ctx, make([]byte, MaxLargeKey), value)
	require.NoError(t, err)
	got, err = c.Get(ctx, make([]byte, MaxLargeKey))
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, got))
}

// TestLargeConcurrent has writers replace, shorten and remove a value while others read it: each read finds one of
// the written values, whole.
func TestLargeConcurrent(t *testing.T) {
	k := newCluster(t, 1, nil)
	ctx, stop := context.WithTimeout(k.ctx, 2*time.Second)
	defer stop()
	key := []byte("key")
	read, missed := 0, 0
	var large atomic.Int32
	begin := time.Now()
	running := func() bool { return ctx.Err() == nil || large.Load() == 0 && time.Since(begin) < time.Minute } // a slow machine reads few of them
	var all sync.WaitGroup
	for w := range uint64(2) {
		all.Go(func() {
			for i := w; running(); i += 2 {
				n := MaxValue + 1 + int(i%3)*MaxValue/2
				if i%5 == 0 {
					n = 1000
				}
				if _, err := k.c.Put(k.ctx, key, long(n, i)); !assert.NoError(t, err) {
					return
				}
				if i%7 == 0 {
					k.c.Delete(k.ctx, key)
				}
			}
		})
	}
	all.Go(func() {
		c := k.local(nil)
		for running() {
			got, err := c.Get(k.ctx, key)
			if errors.Is(err, ErrNotFound) {
				missed++
				continue
			}
			if !assert.NoError(t, err) {
				return
			}
			if read++; len(got) > MaxValue {
				large.Add(1)
			}
			number := binary.LittleEndian.Uint64(got) >> 32
			if !assert.True(t, bytes.Equal(long(len(got), number), got), "%d bytes", len(got)) {
				return
			}
		}
	})
	all.Wait()
	t.Logf("%d values read, %d of them in chunks, %d times none", read, large.Load(), missed)
	require.Positive(t, large.Load())
	require.NoError(t, ignore(k.c.Delete(k.ctx, key), ErrNotFound))
	require.Zero(t, k.parts())
}

func ignore(err, one error) error {
	if errors.Is(err, one) {
		return nil
	}
	return err
}

// TestLargeIncomplete: a value whose chunks are missing, or are not those that were written, is never returned.
func TestLargeIncomplete(t *testing.T) {
	k := newCluster(t, 1, nil)
	c, ctx, key := k.c, k.ctx, []byte("key")
	value := long(2*MaxValue, 1)
	m := protocol.Manifest{ID: drawID(time.Now()), Size: uint64(len(value)), Hash: xxh3.Hash(value)}
	write := func(index uint32, value []byte) {
		chunk := circle.Chunk{ID: m.ID, Index: index, Key: key}
		_, err := c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemChunk, chunk.Append(nil), value, 0, Expiry{})
		require.NoError(t, err)
	}
	write(0, value[:MaxValue])
	_, err := c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemManifest, key, m.Append(nil), 0, Expiry{})
	require.NoError(t, err)
	_, err = c.Get(ctx, key)
	require.ErrorIs(t, err, ErrIncomplete)
	write(1, value[MaxValue:][1:])
	_, err = c.Get(ctx, key)
	require.ErrorIs(t, err, ErrIncomplete)
	value[2*MaxValue-1]++
	write(1, value[MaxValue:])
	_, err = c.Get(ctx, key)
	require.ErrorIs(t, err, ErrIncomplete)
	value[2*MaxValue-1]--
	write(1, value[MaxValue:])
	_, err = c.Get(ctx, key)
	require.NoError(t, err)

	for _, size := range []uint64{0, MaxValue, MaxLarge + 1, 1 << 63} { // a hostile client may write such a manifest: the shard removes nothing because of it
		m.Size = size
		_, err := c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemManifest, []byte("hostile"), m.Append(nil), 0, Expiry{})
		require.NoError(t, err)
		_, err = c.Get(ctx, []byte("hostile"))
		require.ErrorIs(t, err, ErrIncomplete)
	}
	require.NoError(t, c.Delete(ctx, []byte("hostile")))
	require.Equal(t, 2, k.parts())
}

// TestSweep: chunks of a program that ended before it had written the manifest are removed after an hour, and no
// others.
func TestSweep(t *testing.T) {
	k := newCluster(t, 2, nil)
	c, ctx := k.c, k.ctx
	value := []byte("a part")
	chunk := func(age time.Duration, index uint32, key string) circle.Chunk {
		x := circle.Chunk{ID: drawID(time.Now().Add(-age)), Index: index, Key: []byte(key)}
		_, err := c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemChunk, x.Append(nil), value, 0, Expiry{})
		require.NoError(t, err)
		return x
	}
	chunk(sweepAge-time.Minute, 0, "young") // its manifest may still come
	for i := range uint32(3) {
		chunk(sweepAge+time.Minute, i, "old")
		chunk(sweepAge+time.Minute, i, "listed") // by another write
	}
	listed := chunk(2*sweepAge, 1, "listed")
	m := protocol.Manifest{ID: listed.ID, Size: 2 * MaxValue}
	_, err := c.writeItem(ctx, protocol.OpPut, 0, protocol.ItemManifest, listed.Key, m.Append(nil), 0, Expiry{})
	require.NoError(t, err)
	_, err = c.Put(ctx, (&circle.Chunk{Key: []byte("user")}).Append(nil), []byte("a user's key may look like this"))
	require.NoError(t, err)
	n, err := c.Sweep(ctx)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Equal(t, 2, k.parts())
	_, err = c.Get(ctx, listed.Append(nil))
	require.NoError(t, err)
	_, err = c.Get(ctx, (&circle.Chunk{Key: []byte("user")}).Append(nil))
	require.NoError(t, err)
}

// TestLargeFull: a write that finds no room for all of its chunks leaves none of them, and leaves the old value.
func TestLargeFull(t *testing.T) {
	k := &cluster{t: t, net: mem.NewNetwork(), ctx: context.Background()}
	k.o = machine.Options{Shards: 1, Durability: served.Memory, Extent: 16 << 20, Memory: 32 << 20}
	k.start(nil)
	c := k.c
	key := []byte("key")
	_, err := c.Put(k.ctx, key, long(MaxValue+1, 1))
	require.NoError(t, err)
	_, err = c.Put(k.ctx, key, long(6*MaxValue, 2))
	require.ErrorIs(t, err, ErrFull)
	got, err := c.Get(k.ctx, key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(long(MaxValue+1, 1), got))
	n := 0
	for e, err := range c.Scan(k.ctx, nil) {
		require.NoError(t, err)
		require.Equal(t, "key", fmt.Sprintf("%s", e.Key))
		n++
	}
	require.Equal(t, 1, n)
}
