package mvcc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// cutting returns options with which every range that has a record is deleted by a cut.
func cutting(o Options) Options {
	o.CutFrom = 1
	return o
}

// TestCutModel: transactions cut ranges, put records before and after that, and read with cursors opened earlier. They
// see and commit the same as a sorted map, in memory and with spilled write sets. So does the next Open.
func TestCutModel(t *testing.T) {
	inTurn(t)
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			opts := cutting(tiny(Durability(seed % 3)))
			if seed >= 3 {
				opts = cutting(spilling(Durability(seed % 3)))
			}
			opts.Manual = true
			mem := vfs.NewMem(0)
			e := openOn(t, mem, opts)
			rng := rand.New(rand.NewPCG(seed, 8))
			committed := model{}
			for range 8 {
				before, was := begin(t, e, TxOptions{}), committed
				tx := begin(t, e, TxOptions{Serializable: rng.IntN(3) == 0})
				now := committed.clone()
				held := tx.Cursor() // keeps its key, whatever is cut meanwhile
				var at string
				for range 1 + rng.IntN(1200) {
					key := spillKey(rng)
					switch rng.IntN(200) {
					case 0, 1:
						cutSome(t, tx, now, rng)
					case 2:
						if len(now) > 0 {
							at = moveHeld(t, held, at, now, rng)
						}
					default:
						value := spillValue(rng)
						require.NoError(t, tx.Put([]byte(key), []byte(value)))
						now[key] = value
					}
				}
				cutSome(t, tx, now, rng)
				if len(now) > 0 {
					moveHeld(t, held, at, now, rng)
				}
				if rng.IntN(2) == 0 {
					verifyTx(t, tx, now, rng)
				}
				if rng.IntN(5) == 0 {
					require.NoError(t, tx.Rollback())
				} else {
					require.NoError(t, tx.Commit())
					committed = now
				}
				verifyTx(t, before, was, rng)
				require.NoError(t, before.Rollback())
				after := begin(t, e, TxOptions{})
				verifyTx(t, after, committed, rng)
				require.NoError(t, after.Rollback())
				require.NoError(t, e.Check(context.Background()))
			}
			require.NoError(t, e.Close())
			e = openOn(t, mem, opts)
			after := begin(t, e, TxOptions{})
			verifyTx(t, after, committed, rng)
			require.NoError(t, after.Rollback())
			require.NoError(t, e.Check(context.Background()))
			require.NoError(t, e.Close())
			mem.Release()
		})
	}
}

// cutSome clears a range of about a tenth of the keys or more.
func cutSome(t *testing.T, tx *Tx, now model, rng *rand.Rand) {
	from, to := []byte(spillKey(rng)), []byte(spillKey(rng))
	switch rng.IntN(10) {
	case 0:
		from = nil
	case 1:
		to = nil
	case 2, 3, 4, 5:
		n := rng.IntN(4000)
		from, to = fmt.Appendf(nil, "key%05d", n), fmt.Appendf(nil, "key%05d", n+400)
	}
	require.NoError(t, tx.DeleteRange(from, to))
	for k := range now {
		if k >= string(from) && (to == nil || k < string(to)) {
			delete(now, k)
		}
	}
}

// TestCutsWith compares sets of ranges with sets of numbers.
func TestCutsWith(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var c cuts
		var has [20]bool
		for range 1 + rng.IntN(6) {
			from, to := rng.IntN(20), rng.IntN(20)
			from, to = min(from, to), max(from, to)+1
			x := &keyRange{from: []byte{byte(from)}, to: []byte{byte(to)}}
			if rng.IntN(5) == 0 {
				x.to, to = nil, 20
			}
			if rng.IntN(5) == 0 {
				x.from, from = nil, 0
			}
			old := append(cuts(nil), c...)
			c = c.with(x)
			require.Len(t, old, len(old))
			for i := from; i < to; i++ {
				has[i] = true
			}
			for i := 1; i < len(c); i++ {
				require.Less(t, string(c[i-1].to), string(c[i].from))
			}
			for i, want := range has {
				require.Equal(t, want, c.has([]byte{byte(i)}))
			}
		}
	}
}

// TestCutsInTheList: a transaction that has read or written in a range loses to a commit that cuts the range, while
// that commit is being completed and is still in the commit list.
func TestCutsInTheList(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "k%03d", i) }
	read := func(i int) func(*Tx) error {
		return func(tx *Tx) error {
			_, err := tx.Has(key(i))
			return err
		}
	}
	scan := func(from, to int) func(*Tx) error {
		return func(tx *Tx) error {
			c := tx.Cursor()
			for ok := c.Seek(key(from)); ok && string(c.Key()) < string(key(to)); ok = c.Next() {
			}
			return c.Err()
		}
	}
	put := func(i int) func(*Tx) error {
		return func(tx *Tx) error { return errors.Join(read(0)(tx), tx.Put(key(i), nil)) }
	}
	for _, c := range []struct {
		name   string
		serial bool
		do     func(*Tx) error
		lost   bool
	}{
		{"a put of a new key", false, put(101), true},
		{"a put of an old key", false, put(100), true},
		{"a put beside", false, put(301), false},
		{"a read", true, read(100), true},
		{"a read of a key that is not there", true, read(101), true},
		{"a read beside", true, read(50), false},
		{"a scan", true, scan(150, 160), true},
		{"a scan beside", true, scan(0, 60), false},
		{"a scan up to it", true, scan(0, 101), true},
		{"a count", true, func(tx *Tx) error { _, err := tx.Len(); return err }, true},
		{"a read that is not serializable", false, read(100), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			e := openOn(t, mem, cutting(tiny(Durable)))
			for i := 0; i < 400; i += 2 {
				require.NoError(t, e.WriteOne(key(i), []byte("old"), false))
			}
			require.NoError(t, e.Checkpoint())
			first, second := begin(t, e, TxOptions{}), begin(t, e, TxOptions{Serializable: c.serial})
			require.NoError(t, first.DeleteRange(key(100), key(300)))
			require.NoError(t, c.do(second))
			require.NoError(t, second.Put([]byte("other"), nil))
			ended := make(chan error, 1)
			begun := false
			mem.OnOp(func(op vfs.Op) error {
				if cut := cutInList(e); op.Kind == vfs.OpDatasync && !begun && cut != nil {
					begun = true
					go func() { ended <- second.Commit() }()
					for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && cutInList(e) == cut && e.readers.conflicts.Load() == 0; {
						time.Sleep(time.Millisecond)
					}
				}
				return nil
			})
			require.NoError(t, first.Commit())
			require.True(t, begun)
			err := <-ended
			mem.OnOp(nil)
			if c.lost {
				require.ErrorIs(t, err, ErrConflict)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, e.Close())
		})
	}
}

// cutInList returns the newest commit of the list, or nil if that commit cuts no range.
func cutInList(e *Engine) *commitNode {
	if n := e.committer.resolver.list.Head(); n != nil && len(n.Value.cuts()) > 0 {
		return n
	}
	return nil
}

// TestCutsNeedTheFeature: before a range is written to the log, the newer superblock has the feature flag for ranges.
// In a file without ranges, the newer superblock does not have it.
func TestCutsNeedTheFeature(t *testing.T) {
	mem := vfs.NewMem(0)
	defer mem.Release()
	e := openOn(t, mem, cutting(tiny(Durable)))
	for i := range 100 {
		require.NoError(t, e.WriteOne(fmt.Appendf(nil, "k%03d", i), nil, false))
	}
	require.NoError(t, e.Checkpoint())
	require.Zero(t, featuresOf(t, mem)&rangesFeature)
	looks := 0
	mem.OnOp(func(op vfs.Op) error {
		if cutInList(e) != nil && op.Kind != vfs.OpMap {
			require.NotZero(t, featuresOf(t, mem)&rangesFeature, "%v", op)
			looks++
		}
		return nil
	})
	tx := begin(t, e, TxOptions{})
	require.NoError(t, tx.DeleteRange(nil, nil))
	require.NoError(t, tx.Commit())
	mem.OnOp(nil)
	require.NotZero(t, looks)
	require.NoError(t, e.Close())
}

const rangesFeature = 1 << 7

// featuresOf returns the incompatible features of the newer superblock.
func featuresOf(t *testing.T, mem *vfs.Mem) uint64 {
	image := mem.Clone()
	defer image.Release()
	f, err := image.Open("a.fdbm", os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	var supers [2 * 4096]byte
	_, err = f.ReadAt(supers[:], 0)
	require.NoError(t, err)
	le := binary.LittleEndian
	newer := supers[:4096]
	if le.Uint64(supers[4096+48:]) > le.Uint64(newer[48:]) {
		newer = supers[4096:]
	}
	return le.Uint64(newer[24:])
}
