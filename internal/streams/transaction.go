package streams

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Count is the number of streams. Transactions of the first Chained streams change the record that counts them. The
// last Single streams only Put their number, without a transaction. The stream before those writes a value of more
// than 1 MiB at times, if Load.Large is set.
const (
	Count   = 10
	Chained = 3
	Single  = 2
)

const slots = 61 // keys of a stream; slots transactions write all of them

// Numbers has the number of a transaction for each stream; 0 is none.
type Numbers [Count]uint64

// transaction is a transaction of a stream.
type transaction struct {
	stream int
	number uint64
	large  bool // values of more than 1 MiB are allowed
}

// single reports whether the transaction is one Put.
func (t transaction) single() bool { return t.stream >= Count-Single }

// write is one change of a transaction. Its value follows from its seed.
type write struct {
	slot   int
	delete bool
	size   int
	seed   [32]byte
}

// writes lists the changes to the stream's keys, each slot at most once. One of them is the slot number % slots.
func (t transaction) writes() []write {
	if t.single() {
		return nil
	}
	rng := rand.New(rand.NewPCG(uint64(t.stream)<<32, t.number))
	first, step := int(t.number%slots), 1+rng.IntN(slots-1) // slots is prime, so no slot comes twice
	all := make([]write, 1+rng.IntN(6))
	for i := range all {
		w := &all[i]
		w.slot = (first + i*step) % slots
		switch kind := rng.IntN(200); {
		case kind < 25:
			w.delete = true
		case kind < 30:
			w.size = 2_000 + rng.IntN(60_000)
		case kind < 31 && t.large && t.stream == Count-Single-1:
			w.size = 1<<20 + rng.IntN(1<<20)
		default:
			w.size = rng.IntN(700)
		}
		for i := 0; i < len(w.seed); i += 8 {
			binary.LittleEndian.PutUint64(w.seed[i:], rng.Uint64())
		}
	}
	return all
}

// value returns the bytes that the write puts.
func (w *write) value() []byte {
	b := make([]byte, w.size)
	random := rand.NewChaCha8(w.seed)
	_, _ = random.Read(b) // never fails
	return b
}

func slotKey(stream, slot int) []byte { return fmt.Appendf(nil, "stream/%d/slot/%03d", stream, slot) }

// numberKey is the key of the record with the number of a stream's newest transaction. orderKey is the key of the
// record that counts the transactions of the chained streams.
func numberKey(stream int) []byte { return fmt.Appendf(nil, "number/%d", stream) }

var orderKey = []byte("order")

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func decodeNumber(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("a number of %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// state returns, for each slot, the newest write of the transactions 1 to number; nil if the slot has no record
// then.
func state(stream int, number uint64, large bool) [slots]*write {
	var all [slots]*write
	var filled [slots]bool
	missing := slots
	if (transaction{stream, number, large}).single() {
		return all
	}
	for n := number; n > 0 && missing > 0; n-- {
		for _, w := range (transaction{stream, n, large}).writes() {
			if filled[w.slot] {
				continue
			}
			filled[w.slot] = true
			missing--
			if !w.delete {
				all[w.slot] = &w
			}
		}
	}
	return all
}
