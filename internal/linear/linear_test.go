package linear

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flashdbm/dbm"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

var (
	histories = flag.Int("linear.histories", 20, "histories to record and check")
	firstSeed = flag.Uint64("linear.from", 1, "seed of the first one")
)

const (
	checkLimit = 2 * time.Minute // for one history
	perClient  = 120             // operations
)

// TestLinearizable records histories of many clients on few keys, each on a database of its own that flushes and
// checkpoints meanwhile, and checks them.
func TestLinearizable(t *testing.T) {
	operations, undecided := 0, 0
	for i := range *histories {
		seed := *firstSeed + uint64(i)
		h := recordHistory(t, seed)
		operations += len(h)
		switch result, _ := porcupine.CheckOperationsVerbose(model, h, checkLimit); result {
		case porcupine.Illegal:
			t.Fatalf("the history of seed %d is not linearizable", seed)
		case porcupine.Unknown:
			t.Errorf("the history of seed %d took too long to check", seed)
			undecided++
		}
	}
	t.Logf("%d histories, %d operations: %d linearizable, %d undecided", *histories, operations, *histories-undecided, undecided)
}

// TestFindsWrongAnswers changes one answer of each history to a wrong one and requires that the check reports it.
func TestFindsWrongAnswers(t *testing.T) {
	for seed := range uint64(5) {
		h := recordHistory(t, seed)
		rng := rand.New(rand.NewPCG(seed, 2))
		for {
			o := &h[rng.IntN(len(h))]
			a := o.Output.(answer)
			if c := o.Input.(call); c.kind == get || c.kind == extend {
				a.value, a.there = a.value+"?", true
			} else if c.kind == swap || c.kind == insert && a.done && seen(h, c.value) {
				a.done = !a.done
			} else {
				continue
			}
			o.Output = a
			break
		}
		require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(model, h, checkLimit), "seed %d", seed)
	}
}

// seen reports whether any operation has found a value, either alone or with more appended to it, which shows that
// the operation that stored it succeeded. A value that was never seen may have been overwritten at once, so its
// operation may as well have failed.
func seen(h []porcupine.Operation, value string) bool {
	return slices.ContainsFunc(h, func(o porcupine.Operation) bool { return strings.HasPrefix(o.Output.(answer).value, value) })
}

// recordHistory runs clients on a new database.
func recordHistory(t *testing.T, seed uint64) []porcupine.Operation {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	db, err := dbm.Open(filepath.Join(t.TempDir(), "db"), &dbm.Options{
		Durability: dbm.Durability(rng.IntN(3)), RedoLimit: 1 << 20, MemoryLimit: 1 << 20, FlushInterval: 5 * time.Millisecond,
	})
	require.NoError(t, err)
	clients, keys := 2+rng.IntN(9), 1+rng.IntN(4)
	r := recorder{db: db, began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var work, others sync.WaitGroup
	others.Go(func() { r.keepBusy(ctx, seed) })
	for id := range clients {
		work.Go(func() { r.client(id, keys, rand.New(rand.NewPCG(seed, uint64(id)+100))) })
	}
	work.Wait()
	cancel()
	others.Wait()
	require.NoError(t, r.err, "seed %d", seed)
	require.NoError(t, db.Check(context.Background()), "seed %d", seed)
	require.NoError(t, db.Close(), "seed %d", seed)
	return r.history
}

type recorder struct {
	db    *dbm.DB
	began time.Time

	mu      sync.Mutex // guards the rest
	history []porcupine.Operation
	err     error
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// keepBusy writes other keys and makes checkpoints, so that the clients run while there are flushes and pages move.
func (r *recorder) keepBusy(ctx context.Context, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := 0; ctx.Err() == nil; i++ {
		err := r.db.Update(func(tx *dbm.Tx) error {
			for range 20 {
				if err := tx.Put(fmt.Appendf(nil, "busy/%04d", rng.IntN(2000)), make([]byte, rng.IntN(600))); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil && i%20 == 19 {
			err = r.db.Checkpoint()
		}
		if err != nil {
			r.fail(err)
			return
		}
	}
}

// client makes one call after another.
func (r *recorder) client(id, keys int, rng *rand.Rand) {
	last := make([]string, keys) // values seen last
	for i := range perClient {
		c := call{kind: kind(rng.IntN(int(numKind))), key: rng.IntN(keys), value: fmt.Sprintf("%d.%d ", id, i)}
		c.old = last[c.key]
		if len(c.old) > 200 {
			c.kind = put
		}
		from := time.Since(r.began)
		a, err := do(r.db, c)
		to := time.Since(r.began)
		if err != nil {
			r.fail(fmt.Errorf("%+v: %w", c, err))
			return
		}
		if c.kind == get {
			last[c.key] = a.value
		}
		r.mu.Lock()
		r.history = append(r.history, porcupine.Operation{ClientId: id, Input: c, Call: int64(from), Output: a, Return: int64(to)})
		r.mu.Unlock()
	}
}

func do(db *dbm.DB, c call) (a answer, err error) {
	key, value := fmt.Appendf(nil, "key/%d", c.key), []byte(c.value)
	switch c.kind {
	case get:
		v, err := db.Get(key)
		if errors.Is(err, dbm.ErrNotFound) {
			return answer{}, nil
		}
		return answer{there: true, value: string(v)}, err
	case has:
		a.there, err = db.Has(key)
	case put:
		err = db.Put(key, value)
	case del:
		err = db.Delete(key)
	case insert:
		err = db.Update(func(tx *dbm.Tx) error { return tx.Insert(key, value) })
		a.done = err == nil
		if errors.Is(err, dbm.ErrExists) {
			err = nil
		}
	default:
		err = db.Update(func(tx *dbm.Tx) error {
			v, err := tx.Get(key)
			a = answer{there: err == nil, value: string(v)}
			switch {
			case err != nil && !errors.Is(err, dbm.ErrNotFound):
				return err
			case c.kind == swap:
				if a.done = a.there && a.value == c.old; !a.done {
					return nil
				}
				return tx.Put(key, value)
			}
			return tx.Put(key, append([]byte(a.value), value...))
		})
	}
	return a, err
}
