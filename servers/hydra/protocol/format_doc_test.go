package protocol

import (
	"encoding/binary"
	"fmt"
	"testing"

	"flashdbm/internal/formatdoc"
	"flashdbm/servers/circle"

	"github.com/stretchr/testify/require"
)

// These tests compare docs/wire.md with the code.

func TestFormatCodes(t *testing.T) {
	d := formatdoc.OpenNamed(t, "wire.md")
	ops := map[string]uint64{}
	writes := map[string]string{}
	for o, name := range opNames {
		ops[name] = uint64(o)
		writes[name] = map[bool]string{true: "yes", false: "no"}[o.IsWrite()]
	}
	require.Equal(t, ops, d.Table("Ops").Numbers("name", "op"))
	require.Equal(t, writes, d.Table("Ops").Map("name", "write"))
	statuses := map[string]uint64{}
	for s, name := range statusNames {
		statuses[name] = uint64(s)
	}
	require.Equal(t, statuses, d.Table("Statuses").Numbers("name", "status"))
	flags := d.Table("Flags").Numbers("name", "bit")
	for name, f := range map[string]Flags{
		"pointer": FlagPointer, "relative": FlagRelative, "keep expiry": FlagKeepExpiry, "remove": FlagRemove, "keys only": FlagKeysOnly, "more": FlagMore,
	} {
		require.Equal(t, f, Flags(1)<<flags[name], name)
	}
	require.Len(t, flags, 6)
}

// A setter sets fields of a message from the bytes that a layout gives.
type setter map[string]func(v []byte)

func check(t *testing.T, heading string, variables map[string]int, fields func() (setter, func() []byte), size int) {
	t.Helper()
	l := formatdoc.OpenNamed(t, "wire.md").Layout(heading, variables)
	l.Check(func(field string, v []byte) ([]byte, bool) {
		set, encode := fields()
		if set[field] == nil {
			return nil, false
		}
		set[field](v)
		return encode(), true
	})
	require.Equal(t, size, l.End(), heading)
	set, encode := fields()
	for _, f := range l.Fields { // a field without a setter is covered by a test below
		switch f.Name {
		case "zero", "magic", "version", "key size", "value size", "keys", "size", "shards", "addresses":
		default:
			require.Contains(t, set, f.Name, heading)
		}
	}
	b := encode()
	for name, want := range map[string]int{"key size": variables["k"], "value size": variables["v"], "keys": variables["l"], "size": variables["n"]} {
		for _, f := range l.Fields {
			if f.Name == name {
				got := uint64(0)
				for i, x := range f.In(b) {
					got |= uint64(x) << (8 * i)
				}
				require.EqualValues(t, want, got, "%s: %s", heading, name)
			}
		}
	}
}

func u64(p *uint64) func([]byte) { return func(v []byte) { *p = le.Uint64(v) } }
func u32(p *uint32) func([]byte) { return func(v []byte) { *p = le.Uint32(v) } }

func itemFlags(p *ItemFlags) func([]byte) { return func(v []byte) { *p = ItemFlags(le.Uint16(v)) } }
func content(p *[]byte) func([]byte)      { return func(v []byte) { *p = append([]byte(nil), v...) } }

func TestFormatBodies(t *testing.T) {
	check(t, "Write", map[string]int{"k": 3, "v": 5}, func() (setter, func() []byte) {
		r := &Request{Op: OpPut, Key: make([]byte, 3), Value: make([]byte, 5)}
		return setter{"number": u64(&r.Number), "oldest": u64(&r.Oldest), "expiry": u64(&r.Expiry), "operand": u64(&r.Operand),
			"item flags": itemFlags(&r.ItemFlags), "key": content(&r.Key), "value": content(&r.Value)}, func() []byte { return r.AppendBody(nil) }
	}, writeHead+8)
	check(t, "Written", nil, func() (setter, func() []byte) {
		w := &Written{}
		return setter{"version": u64(&w.Version), "sum": func(v []byte) { w.Sum = int64(le.Uint64(v)) }}, func() []byte { return w.AppendBody(nil) }
	}, WrittenSize)
	check(t, "Item", map[string]int{"v": 5}, func() (setter, func() []byte) {
		i := &Item{Value: make([]byte, 5)}
		return setter{"version": u64(&i.Version), "expiry": u64(&i.Expiry), "item flags": itemFlags(&i.ItemFlags), "value": content(&i.Value)},
			func() []byte { return i.AppendBody(nil) }
	}, itemHead+5)
	check(t, "Pointer", nil, func() (setter, func() []byte) {
		p := &Pointer{}
		return setter{"term": u64(&p.Term), "offset": u64(&p.Offset), "extent": u32(&p.Extent), "length": u32(&p.Length), "lease": u32(&p.Lease), "tenure": u32(&p.Tenure)},
			func() []byte { return p.append(nil) }
	}, pointerSize)
	check(t, "Manifest", nil, func() (setter, func() []byte) {
		m := &Manifest{}
		return setter{"id": func(v []byte) { copy(m.ID[:], v) }, "size": u64(&m.Size), "XXH3": u64(&m.Hash)}, func() []byte { return m.Append(nil) }
	}, manifestSize)
	check(t, "Chunk key", map[string]int{"k": 3}, func() (setter, func() []byte) {
		c := &circle.Chunk{Key: make([]byte, 3)}
		return setter{"id": func(v []byte) { copy(c.ID[:], v) }, "index": func(v []byte) { c.Index = binary.BigEndian.Uint32(v) }, "key": content(&c.Key)},
			func() []byte { return c.Append(nil) }
	}, circle.ChunkHead+3)
	check(t, "Extent", nil, func() (setter, func() []byte) {
		e := &Extent{}
		return setter{"term": u64(&e.Term), "key": func(v []byte) {
			for i := range e.Key {
				e.Key[i] = le.Uint64(v[8*i:])
			}
		}}, func() []byte { return e.AppendBody(nil) }
	}, extentSize)
	check(t, "Renewal", map[string]int{"k": 3}, func() (setter, func() []byte) {
		r := &Renewal{Key: make([]byte, 3)}
		return setter{"version": u64(&r.Version), "key": content(&r.Key)}, func() []byte { return AppendRenew(nil, r.Version, r.Key) }
	}, renewalHead+3)
	check(t, "Renewed", map[string]int{"l": 2}, func() (setter, func() []byte) {
		r := &Renewed{Leases: make([]uint32, 2)}
		return setter{"term": u64(&r.Term), "tenure": u32(&r.Tenure), "leases": func(v []byte) { r.Leases = []uint32{le.Uint32(v), le.Uint32(v[4:])} }},
			func() []byte { return r.AppendBody(nil) }
	}, renewedHead+8)
	check(t, "Scan", nil, func() (setter, func() []byte) {
		s := &Scan{}
		return setter{"first": u64(&s.First), "last": u64(&s.Last), "items": u32(&s.Items), "bytes": u32(&s.Bytes)}, func() []byte { return s.AppendBody(nil) }
	}, scanSize)
	check(t, "Scanned", map[string]int{"k": 3, "v": 5}, func() (setter, func() []byte) {
		s := &Scanned{Key: make([]byte, 3), Value: make([]byte, 5)}
		return setter{"version": u64(&s.Version), "expiry": u64(&s.Expiry), "item flags": itemFlags(&s.ItemFlags), "key": content(&s.Key), "value": content(&s.Value)},
			func() []byte { return s.AppendBody(nil) }
	}, scannedHead+8)
	check(t, "Part", map[string]int{"n": 8}, func() (setter, func() []byte) {
		p := &Part{Body: make([]byte, 8)}
		return setter{"op": func(v []byte) { p.Op = Op(v[0]) }, "flags": func(v []byte) { p.Flags = Flags(v[0]) },
				"status": func(v []byte) { p.Status = Status(le.Uint16(v)) }, "body": content(&p.Body)},
			func() []byte { return EndPart(append(AppendPart(nil, p.Op, p.Flags, p.Status), p.Body...), 0) }
	}, partHead+8)
}

func TestFormatGreetings(t *testing.T) {
	check(t, "Hello", nil, func() (setter, func() []byte) {
		h := &Hello{}
		return setter{"shard": u32(&h.Shard), "client": u64(&h.Client), "next": u64(&h.Next), "nonce": func(v []byte) { copy(h.Nonce[:], v) }},
			func() []byte { return h.Append(nil) }
	}, helloSize)
	check(t, "Welcome", nil, func() (setter, func() []byte) {
		w := &Welcome{}
		return setter{"shard": u32(&w.Shard), "map version": u32(&w.MapVersion), "term": u64(&w.Term), "nonce": func(v []byte) { copy(w.Nonce[:], v) },
			"proof": func(v []byte) { copy(w.Proof[:], v) }, "flags": nil}, func() []byte { return w.Append(nil) }
	}, welcomeSize)
	d := formatdoc.OpenNamed(t, "wire.md")
	b := (&Welcome{NeedsAuth: true}).Append(nil)
	l := d.Layout("Welcome", nil)
	require.Equal(t, magic, string(l.Field("magic").In(b)))
	require.Equal(t, magic, l.Field("magic").Constraint)
	require.Equal(t, fmt.Sprint(Version), l.Field("version").Constraint)
	require.Equal(t, "bit 0: AUTH has to be the first request", l.Field("flags").Constraint)
	require.EqualValues(t, 1, le.Uint16(l.Field("flags").In(b)))
}

func TestFormatMap(t *testing.T) {
	d := formatdoc.OpenNamed(t, "wire.md")
	m := Map{Version: 0x01020304, Seed: 0x05060708090A0B0C, Shards: []Place{{Shard: 0x0D0E0F10, Addrs: []string{"abc"}}, {Shard: 0x11121314, Addrs: []string{"", "d"}}}}
	b := m.AppendBody(nil)
	l := d.Layout("Map", nil)
	require.Equal(t, len((&Map{}).AppendBody(nil)), l.End())
	require.Equal(t, m.Version, le.Uint32(l.Field("version").In(b)))
	require.EqualValues(t, 2, le.Uint32(l.Field("shards").In(b)))
	require.Equal(t, m.Seed, le.Uint64(l.Field("seed").In(b)))
	p := d.Layout("Place", nil)
	b = b[len((&Map{}).AppendBody(nil)):]
	require.EqualValues(t, 0x0D0E0F10, le.Uint32(p.Field("shard").In(b)))
	require.EqualValues(t, 1, le.Uint16(p.Field("addresses").In(b)))
	require.Equal(t, "\x03\x00abc", string(b[p.End():p.End()+5]))
	rest := b
	m.Moving = circle.Assignment{Shards: []uint32{0x0D0E0F10, 0x11121314}, Next: []uint32{0x0D0E0F10, 0x11121314, 0x15161718}, Moved: []circle.Pair{{From: 0x0D0E0F10, To: 0x11121314}}}
	b = m.AppendBody(nil)[len((&Map{}).AppendBody(nil))+len(rest):]
	v := d.Layout("Moving", map[string]int{"b": 8, "a": 12, "p": 8})
	require.Len(t, b, v.End())
	require.EqualValues(t, 2, le.Uint32(v.Field("shards before").In(b)))
	require.EqualValues(t, 0x11121314, le.Uint32(v.Field("before").In(b)[4:]))
	require.EqualValues(t, 3, le.Uint32(v.Field("shards behind").In(b)))
	require.EqualValues(t, 0x15161718, le.Uint32(v.Field("behind").In(b)[8:]))
	require.EqualValues(t, 1, le.Uint32(v.Field("pairs").In(b)))
	require.EqualValues(t, 0x0D0E0F10, le.Uint32(v.Field("moved").In(b)))
	require.EqualValues(t, 0x11121314, le.Uint32(v.Field("moved").In(b)[4:]))
}
