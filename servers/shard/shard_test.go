package shard

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/servers/arena"
	"flashdbm/servers/fabric"
	"flashdbm/servers/fabric/mem"
	"flashdbm/servers/hydra/protocol"
	"flashdbm/servers/store"
	"flashdbm/servers/wire"
)

// A desk is a shard with one connection; the goroutine of the test serves both.
type desk struct {
	t       *testing.T
	s       *Shard
	st      *store.Store
	in, out []wire.Message
	request uint64
	number  uint64
	now     int64
	wall    uint64
}

func (d *desk) Begin(int) ([]byte, error) { return nil, nil }
func (d *desk) End(h *wire.Header, body []byte) {
	d.out = append(d.out, wire.Message{Header: *h, Body: bytes.Clone(body)})
}
func (d *desk) Flush()       {}
func (d *desk) Err() error   { return nil }
func (d *desk) Close() error { return nil }
func (d *desk) Receive() (m wire.Message, ok bool) {
	if len(d.in) > 0 {
		m, d.in, ok = d.in[0], d.in[1:], true
	}
	return m, ok
}

func newDesk(t *testing.T, mode Durability, path string, change func(*Options)) *desk {
	d := &desk{t: t, now: 1e9, wall: 1e12}
	domain := mem.NewNetwork().Open()
	o := Options{
		Term: 1, Seed: 5, Durability: mode, Alloc: domain.Alloc, Arena: arena.Options{Extent: 1 << 20},
		Clock: func() (int64, uint64) { return d.now, d.wall },
	}
	if mode != Memory {
		f, err := store.OpenFile(path, 0)
		require.NoError(t, err)
		d.st, err = store.Open(f, func() {}, 0)
		require.NoError(t, err)
		d.st.Start()
		o.Store = d.st
	}
	if change != nil {
		change(&o)
	}
	var err error
	d.s, err = New(o)
	require.NoError(t, err)
	d.now += int64(2 * time.Second) // a second life is quiet at first
	d.s.Sweep()
	d.s.Attach(d, Greeting{Client: 1, Next: 1})
	t.Cleanup(func() {
		d.close()
		assert.NoError(t, domain.Close())
	})
	return d
}

func (d *desk) close() {
	if d.s == nil {
		return
	}
	assert.NoError(d.t, d.s.Close())
	if d.st != nil {
		assert.NoError(d.t, d.st.Close())
	}
	d.s = nil
}

// send serves a request and returns its answer.
func (d *desk) send(op protocol.Op, flags protocol.Flags, body []byte) wire.Message {
	d.t.Helper()
	d.request++
	d.in = append(d.in, wire.Message{Header: wire.Header{Op: uint8(op), Flags: uint8(flags), Request: d.request}, Body: body})
	for began := time.Now(); len(d.out) == 0; time.Sleep(50 * time.Microsecond) {
		d.s.Sweep()
		require.Less(d.t, time.Since(began), 10*time.Second, "no answer")
		if len(d.out) > 0 {
			break
		}
	}
	m := d.out[0]
	d.out = d.out[1:]
	require.Equal(d.t, d.request, m.Request)
	return m
}

func (d *desk) write(q protocol.Request) (protocol.Status, protocol.Written) {
	d.t.Helper()
	if q.Number == 0 {
		d.number++
		q.Number, q.Oldest = d.number, d.number
	}
	m := d.send(q.Op, q.Flags, q.AppendBody(nil))
	var w protocol.Written
	require.NoError(d.t, w.Parse(m.Body))
	return protocol.Status(m.Status), w
}

func (d *desk) put(key, value string) uint64 {
	s, w := d.write(protocol.Request{Op: protocol.OpPut, Key: []byte(key), Value: []byte(value)})
	require.Equal(d.t, protocol.StatusOK, s)
	return w.Version
}

func (d *desk) get(key string) (protocol.Status, protocol.Item) {
	m := d.send(protocol.OpGet, protocol.FlagPointer, []byte(key))
	var it protocol.Item
	if m.Status == 0 {
		require.NoError(d.t, it.Parse(protocol.Flags(m.Flags), m.Body))
	}
	return protocol.Status(m.Status), it
}

func modes(t *testing.T, f func(t *testing.T, d *desk)) {
	for _, mode := range []Durability{Memory, Async, Sync} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) { f(t, newDesk(t, mode, filepath.Join(t.TempDir(), "f"), nil)) })
	}
}

func TestOperations(t *testing.T) {
	modes(t, func(t *testing.T, d *desk) {
		k := []byte("k")
		q := func(op protocol.Op, q protocol.Request) (protocol.Status, protocol.Written) {
			q.Op, q.Key = op, k
			return d.write(q)
		}
		s, _ := d.get("k")
		assert.Equal(t, protocol.StatusNotFound, s)
		s, _ = q(protocol.OpUpdate, protocol.Request{Value: []byte("u")})
		assert.Equal(t, protocol.StatusNotFound, s)
		s, w := q(protocol.OpInsert, protocol.Request{Value: []byte("i"), ItemFlags: protocol.ItemManifest})
		assert.Equal(t, protocol.StatusOK, s)
		s, it := d.get("k")
		assert.Equal(t, protocol.StatusOK, s)
		assert.Equal(t, "i", string(it.Value))
		assert.Equal(t, w.Version, it.Version)
		assert.Equal(t, protocol.ItemManifest, it.ItemFlags)
		s, again := q(protocol.OpInsert, protocol.Request{})
		assert.Equal(t, protocol.StatusExists, s)
		assert.Equal(t, w.Version, again.Version)
		s, v := q(protocol.OpCompareAndSet, protocol.Request{Operand: w.Version + 1, Value: []byte("c")})
		assert.Equal(t, protocol.StatusVersion, s)
		assert.Equal(t, w.Version, v.Version)
		s, _ = q(protocol.OpCompareAndSet, protocol.Request{Operand: w.Version, Value: []byte("c")})
		assert.Equal(t, protocol.StatusOK, s)
		s, _ = q(protocol.OpAdd, protocol.Request{Operand: 1})
		assert.Equal(t, protocol.StatusNotNumber, s)
		s, w = q(protocol.OpUpdate, protocol.Request{Value: []byte(" 7")})
		assert.Equal(t, protocol.StatusOK, s)
		s, _ = q(protocol.OpCompareAndSet, protocol.Request{Operand: w.Version, Flags: protocol.FlagRemove})
		assert.Equal(t, protocol.StatusOK, s)
		s, w = q(protocol.OpAdd, protocol.Request{Operand: uint64(math.MaxUint64 - 6)}) // -7
		assert.Equal(t, protocol.StatusOK, s)
		assert.EqualValues(t, -7, w.Sum)
		s, _ = q(protocol.OpAdd, protocol.Request{Operand: 1 << 63})
		assert.Equal(t, protocol.StatusOverflow, s)
		s, w = q(protocol.OpAdd, protocol.Request{Operand: 10})
		assert.Equal(t, protocol.StatusOK, s)
		assert.EqualValues(t, 3, w.Sum)
		s, _ = q(protocol.OpRemove, protocol.Request{})
		assert.Equal(t, protocol.StatusOK, s)
		s, _ = q(protocol.OpRemove, protocol.Request{})
		assert.Equal(t, protocol.StatusNotFound, s)
		s, _ = q(protocol.OpCompareAndSet, protocol.Request{Flags: protocol.FlagRemove})
		assert.Equal(t, protocol.StatusOK, s, "absent was expected, and is")
	})
}

func TestNumbers(t *testing.T) {
	modes(t, func(t *testing.T, d *desk) {
		add := protocol.Request{Op: protocol.OpAdd, Key: []byte("n"), Operand: 1, Number: 5, Oldest: 3}
		for range 3 { // a retry gets the answer of the first try
			s, w := d.write(add)
			assert.Equal(t, protocol.StatusOK, s)
			assert.EqualValues(t, 1, w.Sum)
		}
		s, _ := d.write(protocol.Request{Op: protocol.OpAdd, Key: []byte("n"), Operand: 1, Number: 6, Oldest: 6})
		assert.Equal(t, protocol.StatusOK, s)
		s, _ = d.write(add)
		assert.Equal(t, protocol.StatusForgotten, s)
		d.s.clients[2] = &client{id: 2, floor: 100, outcomes: map[uint64]outcome{}}
		d.s.conns[0].client = d.s.clients[2]
		s, _ = d.write(protocol.Request{Op: protocol.OpAdd, Key: []byte("n"), Operand: 1, Number: 99, Oldest: 99})
		assert.Equal(t, protocol.StatusUnknownOutcome, s)
		_, it := d.get("n")
		assert.Equal(t, "2", string(it.Value))
	})
}

func TestExpiry(t *testing.T) {
	modes(t, func(t *testing.T, d *desk) {
		set := func(key string, flags protocol.Flags, expiry uint64) {
			s, _ := d.write(protocol.Request{Op: protocol.OpPut, Key: []byte(key), Value: []byte("1"), Flags: flags, Expiry: expiry})
			require.Equal(t, protocol.StatusOK, s)
		}
		set("a", protocol.FlagRelative, 500)
		set("b", 0, d.wall+500)
		set("c", protocol.FlagRelative, 500)
		set("d", 0, 0)
		s, it := d.get("a")
		require.Equal(t, protocol.StatusOK, s)
		assert.Equal(t, d.wall+500, it.Expiry)
		assert.EqualValues(t, 500_000, it.Pointer.Lease, "the lease does not go beyond the expiry")
		s, _ = d.write(protocol.Request{Op: protocol.OpAdd, Key: []byte("c"), Operand: 1, Flags: protocol.FlagKeepExpiry})
		require.Equal(t, protocol.StatusOK, s)
		d.wall += 500
		for _, key := range []string{"a", "c"} {
			s, _ = d.get(key)
			assert.Equal(t, protocol.StatusNotFound, s)
		}
		s, _ = d.write(protocol.Request{Op: protocol.OpInsert, Key: []byte("b"), Value: []byte("2")})
		assert.Equal(t, protocol.StatusOK, s)
		s, _ = d.get("d")
		assert.Equal(t, protocol.StatusOK, s)
		for i := range 100 {
			set(fmt.Sprint(i), protocol.FlagRelative, 10)
		}
		d.wall += 11
		for range 200 {
			d.s.Sweep()
			time.Sleep(10 * time.Microsecond)
		}
		assert.Eventually(t, func() bool { d.s.Sweep(); return d.s.expiring == 0 }, time.Minute, time.Millisecond, "what has expired is removed though nobody asks")
	})
}

// TestExpiryStays: an item that was once answered as expired stays expired, even if the date goes back.
func TestExpiryStays(t *testing.T) {
	modes(t, func(t *testing.T, d *desk) {
		d.s.lazy = true
		ask := map[string]func() protocol.Status{
			"get": func() protocol.Status { s, _ := d.get("get"); return s },
			"update": func() protocol.Status {
				s, _ := d.write(protocol.Request{Op: protocol.OpUpdate, Key: []byte("update"), Value: []byte("2")})
				return s
			},
			"compare": func() protocol.Status { // it expects the absence, and removes: nothing is to be done
				s, _ := d.write(protocol.Request{Op: protocol.OpCompareAndSet, Key: []byte("compare"), Flags: protocol.FlagRemove})
				require.Equal(t, protocol.StatusOK, s)
				return protocol.StatusNotFound
			},
			"remove": func() protocol.Status {
				s, _ := d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte("remove")})
				return s
			},
		}
		for key := range ask {
			d.write(protocol.Request{Op: protocol.OpPut, Key: []byte(key), Value: []byte("1"), Expiry: d.wall + 500})
		}
		d.wall += 500
		for key, f := range ask {
			assert.Equal(t, protocol.StatusNotFound, f(), key)
		}
		d.wall -= 500
		for key := range ask {
			s, _ := d.get(key)
			assert.Equal(t, protocol.StatusNotFound, s, key)
		}
	})
}

func TestLeases(t *testing.T) {
	d := newDesk(t, Memory, "", nil)
	v := d.put("k", "v")
	want := uint32(1_000_000)
	for hit := 1; hit < 200; hit++ {
		_, it := d.get("k")
		if hit+1 >= 2*int(want/1_000_000)*1 && want < 64_000_000 {
			for int(want/1_000_000)*2 <= hit+1 && want < 64_000_000 {
				want *= 2
			}
		}
		require.Equal(t, want, it.Pointer.Lease, "after %d hits", hit)
		require.EqualValues(t, 1_000_000, it.Pointer.Tenure)
	}
	body := protocol.AppendRenew(protocol.AppendRenew(protocol.AppendRenew(nil, v, []byte("k")), v+1, []byte("k")), 1, []byte("absent"))
	m := d.send(protocol.OpRenew, 0, body)
	var r protocol.Renewed
	require.NoError(t, r.Parse(m.Body))
	assert.Equal(t, []uint32{64_000_000, 0, 0}, r.Leases)
	assert.EqualValues(t, 1, r.Term)
	d.put("k", "w")
	assert.Positive(t, d.s.arena.Dead(), "the old item stays as long as its lease")
	_, it := d.get("k")
	assert.EqualValues(t, 2_000_000, it.Pointer.Lease, "hits are of a version")
	d.now += 66e9
	for range 3 {
		d.s.Sweep()
	}
	assert.Zero(t, d.s.arena.Dead())
	e := d.send(protocol.OpExtent, 0, []byte{0, 0, 0, 0})
	var x protocol.Extent
	require.NoError(t, x.Parse(e.Body))
	key, _ := d.s.arena.Key(0)
	assert.Equal(t, key, fabric.Key{ID: x.Key[0], Rkey: x.Key[1], Nonce: x.Key[2], Base: x.Key[3], Len: x.Key[4]})
	assert.EqualValues(t, protocol.StatusNotFound, d.send(protocol.OpExtent, 0, []byte{9, 0, 0, 0}).Status)
}

func (d *desk) scanAll(flags protocol.Flags, items uint32) map[string]string {
	all := map[string]string{}
	for from := uint64(0); ; {
		q := protocol.Scan{First: from, Last: math.MaxUint64, Items: items}
		m := d.send(protocol.OpScan, flags, q.AppendBody(nil))
		require.EqualValues(d.t, 0, m.Status)
		next, _, err := protocol.CheckScan(m.Body)
		require.NoError(d.t, err)
		for it := range protocol.ScannedItems(m.Body) {
			_, twice := all[string(it.Key)]
			require.False(d.t, twice)
			all[string(it.Key)] = string(it.Value)
		}
		if protocol.Flags(m.Flags)&protocol.FlagMore == 0 {
			return all
		}
		require.Greater(d.t, next, from)
		from = next
	}
}

// TestModel compares random writes, with evictions, restarts and some scans, with a map.
func TestModel(t *testing.T) {
	for _, mode := range []Durability{Memory, Async, Sync} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			small := func(o *Options) { o.Arena = arena.Options{Extent: 64 << 10, Limit: 256 << 10} }
			d := newDesk(t, mode, path, small)
			r := rand.New(rand.NewPCG(4, uint64(mode)))
			want := map[string]string{}
			steps := 4000
			if mode == Sync {
				steps = 800
			}
			keys := 300
			if mode == Memory {
				keys = 100
			}
			for step := range steps {
				key := fmt.Sprint("key-", r.IntN(keys))
				switch r.IntN(4) {
				case 0, 1:
					v := fmt.Sprint(step, string(make([]byte, r.IntN(1500))))
					d.put(key, v)
					want[key] = v
				case 2:
					s, _ := d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte(key)})
					_, there := want[key]
					require.Equal(t, there, s == protocol.StatusOK)
					delete(want, key)
				case 3:
					s, it := d.get(key)
					v, there := want[key]
					require.Equal(t, there, s == protocol.StatusOK, key)
					require.Equal(t, v, string(it.Value))
				}
				d.now += r.Int64N(1 << 30)
				if step%(steps/4) == steps/8 {
					require.Equal(t, want, d.scanAll(0, uint32(1+r.IntN(50))))
					assert.Len(t, d.scanAll(protocol.FlagKeysOnly, 0), len(want))
				}
				if step%(steps/3) == steps/6 && mode != Memory {
					d.close()
					d = newDesk(t, mode, path, small)
					require.Equal(t, want, d.scanAll(0, 0), "after a restart")
				}
			}
		})
	}
}

func TestFullMemory(t *testing.T) {
	small := func(o *Options) { o.Arena = arena.Options{Extent: 64 << 10, Limit: 64 << 10} }
	d := newDesk(t, Memory, "", small)
	n := 0
	for ; ; n++ {
		s, _ := d.write(protocol.Request{Op: protocol.OpPut, Key: fmt.Append(nil, n), Value: make([]byte, 1000)})
		if s == protocol.StatusFull {
			break
		}
		require.Equal(t, protocol.StatusOK, s)
	}
	require.Greater(t, n, 40)
	s, _ := d.write(protocol.Request{Op: protocol.OpPut, Key: []byte("k"), Value: make([]byte, 100_000)})
	assert.Equal(t, protocol.StatusTooLarge, s)
	for i := range n {
		s, _ := d.get(fmt.Sprint(i))
		assert.Equal(t, protocol.StatusOK, s)
	}
	s, _ = d.write(protocol.Request{Op: protocol.OpRemove, Key: []byte("3")})
	assert.Equal(t, protocol.StatusOK, s, "a full shard removes")

	d = newDesk(t, Memory, "", func(o *Options) { small(o); o.Evict = true })
	for i := range 500 {
		d.put(fmt.Sprint(i), string(make([]byte, 1000)))
	}
	s, _ = d.get("499")
	assert.Equal(t, protocol.StatusOK, s)
	assert.Less(t, d.s.table.Len(), 70)
}

func TestBatchAndRefusals(t *testing.T) {
	modes(t, func(t *testing.T, d *desk) {
		var body []byte
		add := func(op protocol.Op, part []byte) {
			start := len(body)
			body = protocol.EndPart(append(protocol.AppendPart(body, op, 0, 0), part...), start)
		}
		for i := range uint64(100) {
			q := protocol.Request{Op: protocol.OpPut, Key: fmt.Append(nil, i%10), Value: fmt.Append(nil, i), Number: i + 1, Oldest: 1}
			add(q.Op, q.AppendBody(nil))
			add(protocol.OpGet, fmt.Append(nil, i%10))
		}
		add(protocol.OpAuth+1, nil)
		add(protocol.OpPut, []byte("short"))
		m := d.send(protocol.OpBatch, 0, body)
		n, err := protocol.CheckBatch(m.Body)
		require.NoError(t, err)
		require.Equal(t, 202, n)
		parts := slices.Collect(protocol.Parts(m.Body))
		for i := range 100 {
			assert.Equal(t, protocol.OpPut, parts[2*i].Op, "an answer has the place of its part, whenever it was given")
			assert.Equal(t, protocol.OpGet, parts[2*i+1].Op)
			assert.Equal(t, protocol.StatusOK, parts[2*i].Status)
		}
		assert.Equal(t, protocol.StatusUnknownOp, parts[200].Status)
		assert.Equal(t, protocol.StatusMalformed, parts[201].Status)
		_, it := d.get("7")
		assert.Equal(t, "97", string(it.Value))
		for op := range 256 {
			for _, b := range [][]byte{nil, {1}, bytes.Repeat([]byte{0xff}, 100)} {
				if op < 0xF0 {
					d.send(protocol.Op(op), 0, b)
				}
			}
		}
	})
	d := newDesk(t, Memory, "", nil)
	d.s.conns[0].denied = true
	d.s.conns[0].proof[3] = 9
	assert.EqualValues(t, protocol.StatusDenied, d.send(protocol.OpGet, 0, []byte("k")).Status)
	proof := make([]byte, protocol.ProofSize)
	assert.EqualValues(t, protocol.StatusDenied, d.send(protocol.OpAuth, 0, proof).Status)
	proof[3] = 9
	assert.EqualValues(t, protocol.StatusOK, d.send(protocol.OpAuth, 0, proof).Status)
	assert.EqualValues(t, protocol.StatusNotFound, d.send(protocol.OpGet, 0, []byte("k")).Status)
}

// TestFullBatch fills the answer to a BATCH with values up to each size near its limit. A write that was applied is
// always answered as applied: a value gives way to the answers of writes after it.
func TestFullBatch(t *testing.T) {
	d := newDesk(t, Memory, "", func(o *Options) { o.Arena.Extent = 16 << 20 })
	const first = protocol.MaxValue
	d.put("first", strings.Repeat("v", first))
	given, left := 0, 0
	for fill := protocol.MaxBody - first - 400; fill < protocol.MaxBody-first; fill += 8 {
		d.put("fill", strings.Repeat("w", fill))
		var body []byte
		add := func(op protocol.Op, part []byte) {
			start := len(body)
			body = protocol.EndPart(append(protocol.AppendPart(body, op, 0, 0), part...), start)
		}
		add(protocol.OpGet, []byte("first"))
		add(protocol.OpGet, []byte("fill"))
		for i, op := range []protocol.Op{protocol.OpPut, protocol.OpAdd, protocol.OpRemove} {
			d.number++
			q := protocol.Request{Op: op, Key: fmt.Append(nil, "key", i, ":", fill), Number: d.number, Oldest: d.number}
			add(op, q.AppendBody(nil))
		}
		m := d.send(protocol.OpBatch, 0, body)
		require.LessOrEqual(t, len(m.Body), protocol.MaxBody)
		n, err := protocol.CheckBatch(m.Body)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		parts := slices.Collect(protocol.Parts(m.Body))
		require.Equal(t, protocol.StatusOK, parts[0].Status)
		if parts[1].Status == protocol.StatusOK {
			given++
		} else {
			require.Equal(t, protocol.StatusTooLarge, parts[1].Status)
			left++
		}
		for i, status := range []protocol.Status{protocol.StatusOK, protocol.StatusOK, protocol.StatusNotFound} {
			var w protocol.Written
			require.NoError(t, w.Parse(parts[2+i].Body))
			require.Equal(t, status, parts[2+i].Status, "write %d behind %d bytes", i, first+fill)
		}
		found, _ := d.get(fmt.Sprint("key0:", fill))
		require.Equal(t, protocol.StatusOK, found)
	}
	require.Positive(t, given, "no size has had room")
	require.Positive(t, left, "every size has had room")
}

// TestAloneSince: a second life serves nothing for 1.2 s from the time when it got its file's lock, which may have
// been a while before New. A first life serves at once.
func TestAloneSince(t *testing.T) {
	for term, want := range map[uint64]int64{1: 0, 2: int64(600*time.Millisecond + quietTime)} {
		domain := mem.NewNetwork().Open()
		s, err := New(Options{Term: term, Alloc: domain.Alloc, Arena: arena.Options{Extent: 1 << 20}, Clock: func() (int64, uint64) { return 2e9, 1e12 }})
		require.NoError(t, err)
		s.AloneSince(int64(600 * time.Millisecond))
		require.Equal(t, want, s.quiet)
		require.NoError(t, s.Close())
		require.NoError(t, domain.Close())
	}
}

// A deskConn is another connection of a desk, which may end.
type deskConn struct {
	*desk
	in  []wire.Message
	err error
}

func (c *deskConn) Err() error { return c.err }
func (c *deskConn) Receive() (m wire.Message, ok bool) {
	if len(c.in) > 0 {
		m, c.in, ok = c.in[0], c.in[1:], true
	}
	return m, ok
}

// TestScansOfEndedConnections: the shard does not read the file for a client that has given up, however much waits
// for the file.
func TestScansOfEndedConnections(t *testing.T) {
	var st *store.Store
	d := newDesk(t, Async, filepath.Join(t.TempDir(), "f"), func(o *Options) {
		f, err := store.OpenFile(filepath.Join(t.TempDir(), "g"), 0)
		require.NoError(t, err)
		st, err = store.Open(f, func() {}, 0) // the test does the work of its threads
		require.NoError(t, err)
		t.Cleanup(func() { st.Close() })
		o.Store = st
	})
	d.s.complete = false
	ask := wire.Message{Header: wire.Header{Op: uint8(protocol.OpScan)}, Body: (&protocol.Scan{Last: 1}).AppendBody(nil)}
	c := &deskConn{desk: d, in: []wire.Message{ask, ask, ask}}
	d.s.Attach(c, Greeting{Client: 2})
	d.in = []wire.Message{ask}
	d.s.Sweep()
	require.Len(t, d.s.scans, 4)
	d.s.waiting = maxWaiting // and nothing is polled
	c.err = wire.ErrClosed
	d.s.Sweep()
	assert.Len(t, d.s.scans, 1)
	assert.Equal(t, 1, d.s.Connections())
	d.s.waiting = 0
	reads := 0
	for {
		worked, _ := st.StepLoader(time.Now())
		if !worked {
			break
		}
		reads++
	}
	assert.Equal(t, 2, reads, "one piece is read, and given to the shard")
	d.s.Sweep()
	assert.Len(t, d.out, 1)
	assert.Empty(t, d.s.scans)
}
