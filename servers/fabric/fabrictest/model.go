package fabrictest

import (
	"bytes"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/servers/fabric"
)

// A Model generates random operations of one endpoint, and knows their effects: Reads, Writes and Sends of all
// alignments and lengths, with and without Signal, Inline and Notify, many under way at a time.
type Model struct {
	Remote [ModelSize]byte // the content of the owner's region
	Sent   hash.Hash64     // of the bytes of all Sends, in order

	local  [ModelSize]byte // the content of the initiator's region once all operations have completed
	mem    fabric.Region
	key    fabric.Key
	inline int
	r      *rand.Rand
	upto   int // the end of the last batch
}

// ModelSize is the size in bytes of the owner's region, which starts with zeros, and of the part of the initiator's
// region that the model uses.
const ModelSize = 8192

// NewModel returns a model of operations between local memory and an owner's region; caps are those of the
// initiator's domain.
func NewModel(seed uint64, mem fabric.Region, key fabric.Key, caps fabric.Caps) *Model {
	return &Model{Sent: fnv.New64a(), mem: mem, key: key, inline: caps.MaxInline, r: rand.New(rand.NewPCG(seed, 1))}
}

// Batch returns up to 20 operations, and the number of them that will have a completion; the last one always has.
// They touch different places at both ends, because operations under way are not ordered.
func (m *Model) Batch() (batch []fabric.WR, signalled int) {
	for len(batch) == 0 {
		m.upto = 0
		for most := 1 + m.r.IntN(20); len(batch) < most; {
			from := m.upto + m.r.IntN(20)
			n := m.r.IntN(100)
			if m.r.IntN(8) == 0 {
				n = m.r.IntN(2000)
			}
			if from+n > ModelSize {
				break
			}
			m.upto = from + n
			batch = append(batch, m.operation(from, m.upto))
		}
	}
	for i := range batch {
		if i == len(batch)-1 || m.r.IntN(3) == 0 {
			batch[i].Flags |= fabric.Signal
			signalled++
		}
	}
	return batch, signalled
}

func (m *Model) operation(from, to int) fabric.WR {
	op := fabric.Read + fabric.Op(m.r.IntN(2))
	if m.r.IntN(50) == 0 { // a Send takes a hundred times as long with most providers
		op = fabric.Send
	}
	w := fabric.WR{
		Op: op, Local: m.mem, LOff: uint64(from), LLen: uint64(to - from), Remote: m.key, ROff: uint64(from),
	}
	if w.Op == fabric.Read {
		copy(m.local[from:to], m.Remote[from:to])
		return w
	}
	for i := from; i < to; i++ {
		m.local[i] = byte(m.r.Uint32())
	}
	copy(m.mem.Bytes()[from:to], m.local[from:to])
	if to-from <= m.inline && m.r.IntN(2) == 0 {
		w.Flags |= fabric.Inline
	}
	if w.Op == fabric.Send {
		m.Sent.Write(m.local[from:to])
		return w
	}
	copy(m.Remote[from:to], m.local[from:to])
	if m.r.IntN(10) == 0 {
		w.Flags |= fabric.Notify
	}
	return w
}

// Complete reports whether the initiator's memory is correct once a batch has completed.
func (m *Model) Complete() bool { return bytes.Equal(m.local[:m.upto], m.mem.Bytes()[:m.upto]) }

// testModel compares random operations with a model.
func testModel(t *testing.T, s *suite) {
	o := s.owner(t)
	c := s.connect(t, o)
	region, key := alloc(t, o, ModelSize, both)
	o.call(t, request{Do: "sink", Conn: c.peer})
	seed := rand.Uint64()
	m := NewModel(seed, c.local, key, c.d.Caps())
	total := Operations()
	for done := 0; done < total; {
		batch, signalled := m.Batch()
		c.post(batch...)
		for range signalled {
			wc := c.completion(patience)
			require.NotNil(t, wc, "seed %d", seed)
			require.NoError(t, wc.Err, "seed %d", seed)
		}
		require.True(t, m.Complete(), "seed %d, after %d operations", seed, done)
		done += len(batch)
	}
	require.True(t, bytes.Equal(m.Remote[:], o.call(t, request{Do: "load", Region: region, N: ModelSize}).Bytes), "seed %d", seed)
	require.Equal(t, m.Sent.Sum64(), o.call(t, request{Do: "still"}).N, "seed %d: what was sent", seed)
}
