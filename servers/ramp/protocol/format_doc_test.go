package protocol

import (
	"testing"

	"flashdbm/internal/formatdoc"

	"github.com/stretchr/testify/require"
)

// These tests compare docs/wire.md with the code.

func TestFormatCodes(t *testing.T) {
	d := formatdoc.OpenNamed(t, "wire.md")
	ops, statuses := map[string]uint64{}, map[string]uint64{}
	for o, name := range opNames {
		ops[name] = uint64(o)
	}
	for s, name := range statusNames {
		statuses[name] = uint64(s)
	}
	require.Equal(t, ops, d.Table("RAMP ops").Numbers("name", "op"))
	require.Equal(t, statuses, d.Table("RAMP statuses").Numbers("name", "status"))
	flags := d.Table("RAMP flags").Numbers("name", "bit")
	require.Len(t, flags, 4)
	for name, f := range map[string]Flags{"pointer": FlagPointer, "timestamps": FlagTimestamps, "one phase": FlagOnePhase, "exclusive": FlagExclusive} {
		require.Equal(t, f, Flags(1)<<flags[name], name)
	}
}

type setter map[string]func(v []byte)

// check compares a layout with what encode writes after each field was set.
func check(t *testing.T, heading string, variables map[string]int, size int, fields func() (setter, func() []byte)) {
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
	set, _ := fields()
	for _, f := range l.Fields {
		switch f.Name {
		case "zero", "magic", "version", "key size", "value size", "content size", "hashes", "parts", "keys", "among", "versions", "words", "needs auth", "removed":
		default:
			require.Contains(t, set, f.Name, heading)
		}
	}
}

func u64[T ~uint64](p *T) func([]byte) { return func(v []byte) { *p = T(le.Uint64(v)) } }
func u32(p *uint32) func([]byte)       { return func(v []byte) { *p = le.Uint32(v) } }
func u8[T ~uint8](p *T) func([]byte)   { return func(v []byte) { *p = T(v[0]) } }
func content(p *[]byte) func([]byte)   { return func(v []byte) { *p = append([]byte(nil), v...) } }

func TestFormatBodies(t *testing.T) {
	check(t, "RAMP hello", nil, helloSize, func() (setter, func() []byte) {
		h := &Hello{}
		return setter{"partition": u32(&h.Partition), "client": u64(&h.Client), "nonce": func(v []byte) { copy(h.Nonce[:], v) }},
			func() []byte { return h.Append(nil) }
	})
	check(t, "RAMP welcome", nil, welcomeSize, func() (setter, func() []byte) {
		w := &Welcome{}
		return setter{"partition": u32(&w.Partition), "partitions": u32(&w.Partitions), "seed": u64(&w.Seed), "term": u64(&w.Term), "life": u64(&w.Life),
			"nonce": func(v []byte) { copy(w.Nonce[:], v) }, "proof": func(v []byte) { copy(w.Proof[:], v) }}, func() []byte { return w.Append(nil) }
	})
	check(t, "RAMP prepare", nil, prepareHead, func() (setter, func() []byte) {
		p := &Prepare{}
		return setter{"timestamp": u64(&p.TS), "client": u64(&p.Client), "kind": u8(&p.Kind)}, func() []byte { return p.AppendBody(nil) }
	})
	check(t, "RAMP part", map[string]int{"k": 3, "v": 5}, partHead+8, func() (setter, func() []byte) {
		p := &Part{Key: make([]byte, 3), Value: make([]byte, 5)}
		return setter{"key": content(&p.Key), "value": content(&p.Value)}, func() []byte { return p.append(nil) }
	})
	check(t, "RAMP transaction", nil, TransactionSize, func() (setter, func() []byte) {
		d := &Transaction{}
		return setter{"timestamp": u64(&d.TS), "client": u64(&d.Client)}, func() []byte { return d.AppendBody(nil) }
	})
	check(t, "RAMP newest", nil, NewestSize, func() (setter, func() []byte) {
		n := &Newest{}
		return setter{"timestamp": u64(&n.TS)}, func() []byte { return n.AppendBody(nil) }
	})
	check(t, "RAMP get", nil, getHead, func() (setter, func() []byte) {
		return setter{}, func() []byte { return (&Get{}).AppendBody(nil) }
	})
	check(t, "RAMP got", nil, gotHead, func() (setter, func() []byte) {
		g := &Got{}
		return setter{"term": u64(&g.Term), "tenure": u32(&g.Tenure)}, func() []byte { return g.AppendBody(nil) }
	})
	check(t, "RAMP version", map[string]int{"n": 5}, versionHead+5, func() (setter, func() []byte) {
		v := &Version{Content: make([]byte, 5)}
		return setter{"state": u8(&v.State), "timestamp": u64(&v.TS), "offset": u64(&v.Slot.Offset), "extent": u32(&v.Slot.Extent), "length": u32(&v.Slot.Length),
			"content": content(&v.Content)}, func() []byte { return v.Append(nil) }
	})
	check(t, "RAMP content", map[string]int{"m": 32, "v": 5}, contentHead+37, func() (setter, func() []byte) {
		m, value := &Meta{Data: make([]byte, 32)}, make([]byte, 5)
		return setter{"kind": u8(&m.Kind), "client": u64(&m.Client), "meta": content(&m.Data), "value": content(&value)}, func() []byte { return m.AppendContent(nil, value) }
	})
	check(t, "RAMP lock", nil, TransactionSize+4, func() (setter, func() []byte) {
		l := &Lock{}
		return setter{"timestamp": u64(&l.TS), "client": u64(&l.Client)}, func() []byte { return l.AppendBody(nil) }
	})
}
