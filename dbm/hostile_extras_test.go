package dbm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// extras are additional steps in the script of every second base. They are drawn from a separate source, so that
// the other bases stay as they were.
type extras struct {
	rng    *rand.Rand
	holds  bool // snapshots stay open while what they see is overwritten, and parts of the segments that they keep are freed
	stream bool // large values come from PutReader and are overwritten
	async  bool // commits do not wait
	scans  bool // scans make background work log values again in key order

	held []*Tx
	did  extrasDone
}

// extrasDone counts what the extras did, for a test that they do it.
type extrasDone struct {
	held, holes, streamed, async, scans int
	moved                               uint64 // record groups with values that were logged again after scans
}

func drawExtras(seed uint64) *extras {
	rng := rand.New(rand.NewPCG(seed, 78))
	x := &extras{rng: rng}
	if rng.IntN(2) == 0 {
		x.holds, x.stream, x.async, x.scans = rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0, rng.IntN(2) == 0
	}
	return x
}

// adjust changes the options of a base as its extras require.
func (x *extras) adjust(o *mvcc.Options) {
	if x.scans {
		o.ScanOften = 1
		if o.Durability == mvcc.WriteThrough { // in this mode, values do not stay where they are logged
			o.Durability = mvcc.Buffered
		}
	}
}

// steps runs some additional steps between two others.
func (x *extras) steps(db func() *DB, l *load, mem *vfs.Mem) (steps []func() error) {
	if x.holds && x.rng.IntN(2) == 0 {
		steps = append(steps, func() error { return x.hold(db(), l, mem) })
	}
	if x.stream && x.rng.IntN(2) == 0 {
		steps = append(steps, func() error { return x.put(db(), l) })
	}
	if x.async && x.rng.IntN(2) == 0 {
		steps = append(steps, func() error { return x.commitAsync(db(), l, mem) })
	}
	if x.scans && x.rng.IntN(2) == 0 {
		steps = append(steps, func() error { return x.scan(db(), l) })
	}
	return steps
}

// hold begins a snapshot, or ends the oldest if there are three. Then much of what it sees is overwritten, and
// checkpoints free what nobody needs of segments that are kept only for it.
func (x *extras) hold(db *DB, l *load, mem *vfs.Mem) error {
	if len(x.held) == 3 {
		x.held[0].Rollback()
		x.held = x.held[1:]
	} else {
		tx, err := db.Begin(TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		x.held = append(x.held, tx)
		x.did.held++
	}
	for range 1 + x.rng.IntN(3) {
		ops := l.drawAll(x.rng)
		if x.rng.IntN(2) == 0 {
			ops = l.draw(x.rng, mem)
		}
		if err := commitOps(db, ops); err != nil {
			return err
		}
		if err := db.Checkpoint(); err != nil {
			return err
		}
	}
	return db.Checkpoint()
}

// end ends the snapshots.
func (x *extras) end() {
	for _, tx := range x.held {
		tx.Rollback()
	}
	x.held = nil
}

// put puts one large value, several times.
func (x *extras) put(db *DB, l *load) error {
	key := []byte(l.key(x.rng.IntN(min(3, l.keys))))
	for range 1 + x.rng.IntN(3) {
		err := db.Update(func(tx *Tx) error {
			for range 1 + x.rng.IntN(2) {
				v := randomBytes(x.rng, x.rng.IntN(90<<10))
				size := int64(len(v))
				if x.rng.IntN(2) == 0 {
					size = UnknownSize
				}
				if err := tx.PutReader(key, bytes.NewReader(v), size); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		x.did.streamed++
	}
	return nil
}

// commitAsync makes up to four commits at the same time and waits for them.
func (x *extras) commitAsync(db *DB, l *load, mem *vfs.Mem) (err error) {
	done := make(chan error, 4)
	under := 0
	for range 1 + x.rng.IntN(cap(done)) {
		ops := l.draw(x.rng, mem)
		switch o := ops[0]; {
		case x.rng.IntN(2) == 0:
			b := db.Batch()
			for _, o := range ops {
				if o.value == nil {
					b.Delete(o.key)
				} else {
					b.Put(o.key, o.value)
				}
			}
			err = b.CommitAsync(func(err error) { done <- err })
		case o.value == nil:
			err = db.DeleteAsync(o.key, func(err error) { done <- err })
		default:
			err = db.PutAsync(o.key, o.value, func(err error) { done <- err })
		}
		if err != nil {
			break
		}
		under++
		x.did.async++
	}
	for range under {
		err = errors.Join(err, <-done)
	}
	return err
}

// scan puts all keys in another order than theirs, reads all values, and runs the background work that this has
// caused.
func (x *extras) scan(db *DB, l *load) error {
	ops := l.drawAll(x.rng)
	x.rng.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	for i := range ops {
		if x.rng.IntN(4) > 0 {
			ops[i].value = randomBytes(x.rng, 400+x.rng.IntN(900))
		}
	}
	for some := range slices.Chunk(ops, 10) {
		if err := commitOps(db, some); err != nil {
			return err
		}
	}
	for range 2 {
		if err := db.Checkpoint(); err != nil { // after it, values are where their leaves say
			return err
		}
		for range 2 {
			if _, err := scan(db, nil); err != nil {
				return err
			}
		}
		before := db.Stats().RecordGroups
		for range 2 { // a flush comes first if one is due
			if err := db.engine.Housekeep(); err != nil {
				return err
			}
		}
		x.did.moved += db.Stats().RecordGroups - before
		x.did.scans++
	}
	return nil
}

// TestHostileBases: the bases of hostile files are databases of all kinds.
func TestHostileBases(t *testing.T) {
	var all extrasDone
	for seed := range uint64(120) {
		_, did, err := drawBaseExtras(seed)
		require.NoError(t, err)
		all.held += did.held
		all.holes += did.holes
		all.streamed += did.streamed
		all.async += did.async
		all.scans += did.scans
		all.moved += did.moved
	}
	t.Logf("%+v", all)
	require.NotZero(t, all.held)
	require.NotZero(t, all.holes)
	require.NotZero(t, all.streamed)
	require.NotZero(t, all.async)
	require.NotZero(t, all.scans)
	require.NotZero(t, all.moved)
}
