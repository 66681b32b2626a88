package hydra

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/hydra/protocol"
	served "flashdbm/servers/shard"
	"flashdbm/servers/wire"
)

// receivedParts is received for the parts of a batch.
func receivedParts(t *testing.T, l wire.Line) served.Parts {
	require.Eventually(t, l.Waiting, time.Minute, time.Millisecond)
	m, ok := l.Receive()
	require.True(t, ok)
	return m.Local.(served.Parts)
}

func twoRequests() []Request {
	return []Request{{Kind: Get, Key: []byte("a")}, {Kind: Put, Key: []byte("b"), Value: []byte("1")}}
}

// TestBegin: a call of several requests ends when the shard has answered all of them, or when they are withdrawn. The
// memory of withdrawn requests is not reused, because the shard may still find them.
func TestBegin(t *testing.T) {
	h, c := newHost(t, nil)
	require.True(t, c.Begins())
	l := h.lines[0]
	ended := 0
	b := NewBegun(func() { ended++ })

	lost := twoRequests()
	c.Begin(b, lost)
	c.Withdraw(b, context.Canceled)
	require.Equal(t, 1, ended)
	require.ErrorIs(t, lost[0].Err, ErrUnavailable)
	require.ErrorIs(t, lost[1].Err, ErrUnknownOutcome)

	list := append(twoRequests(), Request{Kind: Get, Key: make([]byte, MaxKey+1)})
	c.Begin(b, list)
	require.Equal(t, 1, ended)
	p := receivedParts(t, l) // the list that was withdrawn is passed over
	require.Equal(t, 2, p.Len())
	p.Read(0, 0, 7, 0, []byte("value"))
	p.Served()
	require.Equal(t, 1, ended)
	p.Wrote(1, protocol.StatusOK, protocol.Written{Version: 8})
	require.Equal(t, 2, ended)
	require.Equal(t, "value", string(list[0].Item.Value))
	require.EqualValues(t, 8, list[1].Item.Version)
	require.ErrorIs(t, list[2].Err, ErrTooLarge)
	c.Withdraw(b, context.Canceled)
	require.Equal(t, 2, ended)

	list = list[2:]
	c.Begin(b, list) // none of them is for a shard
	require.Equal(t, 3, ended)
}

// TestPartsWithdraw ends a batch's context before the batch is served, while it is served, and while an answer waits
// for the file. The caller returns at once, or when the shard no longer uses its keys. Answers that have come are
// kept; later answers go to nobody.
func TestPartsWithdraw(t *testing.T) {
	for _, when := range []string{"queued", "serving", "waiting"} {
		t.Run(when, func(t *testing.T) {
			h, c := newHost(t, nil)
			l := h.lines[0]
			ctx, cancel := context.WithCancel(context.Background())
			list := twoRequests()
			done := make(chan error)
			go func() { done <- c.Batch(ctx, list) }()
			require.Eventually(t, l.Waiting, time.Minute, time.Millisecond)
			var p served.Parts
			if when != "queued" {
				p = receivedParts(t, l)
				var q protocol.Request
				p.Request(1, &q)
				require.Equal(t, protocol.Request{Op: protocol.OpPut, Key: []byte("b"), Value: []byte("1")}, q)
				p.Read(0, 0, 7, 0, []byte("value"))
			}
			if when == "waiting" {
				p.Served()
			}
			cancel()
			if when == "serving" {
				select {
				case <-done:
					t.Fatal("the caller has its keys back while the shard uses them")
				case <-time.After(20 * time.Millisecond):
				}
				p.Served()
			}
			err := <-done
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, list[1].Err, ErrUnknownOutcome)
			if when == "queued" {
				require.ErrorIs(t, list[0].Err, ErrUnavailable)
				_, ok := l.Receive()
				require.False(t, ok, "what was given up is not served")
				return
			}
			require.NoError(t, list[0].Err)
			require.Equal(t, "value", string(list[0].Item.Value))
			second := twoRequests()
			go func() { done <- c.Batch(context.Background(), second) }()
			p2 := receivedParts(t, l)
			list[1].Err = nil
			p.Wrote(1, protocol.StatusFull, protocol.Written{})
			require.NoError(t, list[1].Err, "the caller's again")
			p2.Answer(0, 0, protocol.StatusNotFound, nil)
			p2.Served()
			p2.Wrote(1, protocol.StatusOK, protocol.Written{Version: 9})
			require.ErrorIs(t, <-done, ErrNotFound)
			require.NoError(t, second[1].Err)
			require.EqualValues(t, 9, second[1].Item.Version)
		})
	}
}

// TestPartsClosed closes the line at the same moments, and before a batch.
func TestPartsClosed(t *testing.T) {
	for _, when := range []string{"before", "queued", "serving", "waiting"} {
		t.Run(when, func(t *testing.T) {
			h, c := newHost(t, nil)
			l := h.lines[0]
			list := twoRequests()
			done := make(chan error)
			if when == "before" {
				l.Close()
			}
			go func() { done <- c.Batch(context.Background(), list) }()
			var p served.Parts
			switch when {
			case "queued":
				require.Eventually(t, l.Waiting, time.Minute, time.Millisecond)
			case "serving", "waiting":
				p = receivedParts(t, l)
			}
			if when == "waiting" {
				p.Served()
			}
			l.Close()
			if when == "serving" {
				p.Wrote(1, protocol.StatusOK, protocol.Written{})
				p.Served()
			}
			require.ErrorIs(t, <-done, ErrClosed)
			require.ErrorIs(t, list[0].Err, ErrClosed)
			switch when {
			case "serving":
				require.NoError(t, list[1].Err)
			case "before":
				require.ErrorIs(t, list[1].Err, ErrClosed)
			default:
				require.ErrorIs(t, list[1].Err, ErrUnknownOutcome)
			}
		})
	}
}

// TestPartsAsCalls gives the same batches to a client whose calls are messages and to a client of the same process,
// each with keys of its own: the results are the same.
func TestPartsAsCalls(t *testing.T) {
	for _, mode := range []served.Durability{served.Memory, served.Async, served.Sync} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			k := newClusterOf(t, 2, mode)
			local := k.local(nil)
			r := rand.New(rand.NewPCG(1, 2))
			batches := 300
			if mode == served.Sync {
				batches = 50
			}
			versions := [2]map[string]uint64{{}, {}}
			for range batches {
				var list [2][]Request
				for i := range 2 + r.IntN(20) {
					key := fmt.Sprint("key ", i) // each key once: the requests of a batch have no certain order
					kind := Kind(r.IntN(int(Add) + 2))
					value := fmt.Append(nil, r.IntN(100))
					if r.IntN(10) == 0 {
						value = bytes.Repeat([]byte("long "), r.IntN(5000))
					}
					n := int64(r.IntN(100))
					e := []Expiry{{}, Keep(), In(time.Hour)}[r.IntN(3)]
					stale := uint64(r.IntN(2))
					if r.IntN(50) == 0 {
						key = string(make([]byte, MaxKey+1))
					}
					for side := range list {
						mine := append([]byte{byte('0' + side)}, key...)
						old := versions[side][string(mine)] - stale
						list[side] = append(list[side], Request{Kind: kind, Key: mine, Value: value, Expiry: e, Old: old, N: n})
					}
				}
				k.c.Batch(k.ctx, list[0])
				local.Batch(k.ctx, list[1])
				for i := range list[0] {
					a, b := &list[0][i], &list[1][i]
					require.Equal(t, fmt.Sprint(a.Err), fmt.Sprint(b.Err), "kind %d", a.Kind)
					require.Equal(t, string(a.Item.Value), string(b.Item.Value))
					require.Equal(t, a.Sum, b.Sum)
					require.Equal(t, a.Item.Version == 0, b.Item.Version == 0)
					require.InDelta(t, a.Item.Expiry.Unix(), b.Item.Expiry.Unix(), 60)
					for side, x := range []*Request{a, b} {
						if v := x.Item.Version; v != 0 {
							versions[side][string(x.Key)] = v
						} else if x.Err == nil || errors.Is(x.Err, ErrNotFound) {
							delete(versions[side], string(x.Key))
						}
					}
				}
			}
		})
	}
}

// TestPartsContexts ends contexts of batches at random moments. When Batch has returned, the keys belong to the
// caller again.
func TestPartsContexts(t *testing.T) {
	k := newClusterOf(t, 2, served.Sync)
	c := k.local(nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			list := make([]Request, 10)
			for i := range list {
				list[i] = Request{Kind: Kind(1 + i%2), Key: fmt.Append(nil, "key ", i), Value: []byte("value")}
			}
			for i := range 100 {
				ctx, cancel := context.WithTimeout(k.ctx, time.Duration(i*g%50)*20*time.Microsecond)
				c.Batch(ctx, list)
				cancel()
				for j := range list {
					r := &list[j]
					known := r.Err == nil || errors.Is(r.Err, ErrNotFound) || errors.Is(r.Err, context.DeadlineExceeded)
					if !known || r.Err == nil && r.Kind == Get && string(r.Item.Value) != "value" {
						t.Errorf("%v %q", r.Err, r.Item.Value)
					}
					r.Key[0] ^= 1
				}
			}
		})
	}
	wg.Wait()
}

// TestPartsOfTheFile has more records than memory has room for: parts wait for the file, and the shard has copies of
// its own of their keys.
func TestPartsOfTheFile(t *testing.T) {
	k := &cluster{t: t, net: mem.NewNetwork(), ctx: context.Background()}
	k.o = machine.Options{Shards: 1, Durability: served.Sync, Extent: 8 << 20, Memory: 8 << 20, Dir: t.TempDir()}
	k.start(nil)
	c := k.local(nil)
	const records, each = 300, 10
	value := func(i, round int) []byte { return bytes.Repeat(fmt.Append(nil, i, " of ", round, " "), 6000) }
	for round := range 2 {
		for from := 0; from < records; from += each {
			var list []Request
			for i := from; i < from+each; i++ {
				kind := Insert
				if round > 0 {
					kind = Update
				}
				list = append(list, Request{Kind: kind, Key: fmt.Append(nil, "key ", i), Value: value(i, round)})
			}
			require.NoError(t, c.Batch(k.ctx, list))
			for i := range list {
				list[i].Key[0], list[i].Value[0] = 'x', 'x'
			}
		}
		for from := range records / each {
			var list []Request
			for i := from; i < records; i += records / each {
				list = append(list, Request{Kind: Get, Key: fmt.Append(nil, "key ", i)})
			}
			require.NoError(t, c.Batch(k.ctx, list))
			for j := range list {
				require.True(t, bytes.Equal(value(from+j*records/each, round), list[j].Item.Value), "round %d", round)
			}
		}
	}
}
