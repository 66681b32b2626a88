package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

// TestFailedSyncShowsNothingOlder makes each sync of a run fail in turn. Meanwhile segments are reused many times,
// so that each place in the file has had a page of the same name before. The system drops what it could not write.
// A record whose commit has returned is shown as it is, by transactions begun before and after the failure. In
// modes in which it was not synced, reading it may be an error, but never returns an older value.
func TestFailedSyncShowsNothingOlder(t *testing.T) {
	step := 2
	if testing.Short() {
		step = 7
	}
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		for _, long := range []int{0, 3000} {
			t.Run(fmt.Sprint(d, " ", long), func(t *testing.T) {
				shown := 0
				for at := 1; ; at += step {
					n, struck := failedSync(t, d, long, at)
					if shown += n; !struck {
						break
					}
				}
				require.Greater(t, shown, 100)
			})
		}
	}
}

// failedSync is one run in which the sync with the given number fails. It returns how many records were shown after
// that.
func failedSync(t *testing.T, d Durability, long, at int) (shown int, struck bool) {
	mem := vfs.NewMem(8 << 20)
	defer mem.Release()
	o := (&load{segmentPages: 8, memoryLimit: 64 << 10, redoLimit: 32 << 10, durability: int(d)}).options(rand.New(rand.NewPCG(1, 1)))
	o.Durability, o.Manual = mvcc.Durability(d), true
	db, err := openEngine(mem, crashPath, o)
	require.NoError(t, err)
	defer db.Close()
	syncs := 0
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			if syncs++; syncs == at {
				struck = true
				return syscall.EIO
			}
		}
		return nil
	})
	const keys = 24
	value := func(key, round int) string { return fmt.Sprintf("%d %d %0*d", key, round, 100+long, round) }
	acked, durable := map[int]int{}, map[int]int{}
	var before *Tx
	defer func() {
		if before != nil {
			before.Rollback()
		}
	}()
	seen := map[int]int{}
	rng := rand.New(rand.NewPCG(5, 5))
	for round := 1; round <= 30 && !struck; round++ {
		if before != nil {
			before.Rollback()
		}
		before, err = db.Begin(TxOptions{ReadOnly: true})
		if err != nil {
			break
		}
		clear(seen)
		for k, v := range acked {
			seen[k] = v
		}
		first, n := rng.IntN(keys), 1+rng.IntN(keys/2)
		err := db.Update(func(tx *Tx) error {
			for i := range n {
				k := (first + i) % keys
				if err := tx.Put([]byte(fmt.Sprintf("key%03d", k)), []byte(value(k, round))); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			for i := range n {
				acked[(first+i)%keys] = round
			}
		}
		switch {
		case err != nil:
		case round%7 == 0:
			err = db.Checkpoint()
		case round%3 == 0:
			err = db.engine.Housekeep()
		case round%4 == 0:
			err = db.Sync()
		}
		if err == nil && (d == Durable || round%7 == 0 || round%4 == 0) {
			for k, v := range acked {
				durable[k] = v
			}
		}
		if err != nil {
			require.True(t, struck, "%v", err)
		}
	}
	if !struck {
		return 1000, false
	}
	look := func(tx *Tx, least map[int]int, when string) {
		for k, r := range least {
			v, err := tx.Get([]byte(fmt.Sprintf("key%03d", k)))
			if err != nil && d != Durable && errors.Is(err, ErrFailed) && long > 0 && durable[k] != r {
				continue
			}
			require.NoError(t, err, "sync %d, key %d, %s", at, k, when)
			var key, round int
			_, err = fmt.Sscanf(string(v), "%d %d", &key, &round)
			require.NoError(t, err)
			require.GreaterOrEqual(t, round, r, "sync %d, key %d, %s: an older value", at, k, when)
			require.Equal(t, value(k, round), string(v))
			shown++
		}
	}
	for _, when := range []string{"behind the failure", "when all is gone"} {
		if before != nil {
			look(before, seen, "a transaction from before, "+when)
		}
		tx, err := db.Begin(TxOptions{ReadOnly: true})
		require.NoError(t, err)
		defer tx.Rollback()
		look(tx, acked, when)
		mem.Evict()
	}
	return shown, true
}
