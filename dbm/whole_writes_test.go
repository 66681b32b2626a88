package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// async makes commits that are not waited for, then waits for all of them.
func (w *wholeWorld) async() error {
	n := 1 + w.rng.IntN(30)
	done := make(chan error, n+1)
	calls := 0
	began := len(w.commits)
	for range n {
		x := w.newTx(nil, TxOptions{})
		k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
		var err error
		switch w.rng.IntN(4) {
		case 0:
			x.remove(0, string(k))
			err = w.db.DeleteAsync(k, func(err error) { done <- err })
		case 1:
			b := w.db.Batch()
			x.put(0, string(k), wholeRecord{value: string(v)})
			x.put(0, "k00", wholeRecord{value: "async"})
			err = errors.Join(b.Put(k, v), b.Put([]byte("k00"), []byte("async")))
			if string(k) == "k00" {
				x.put(0, "k00", wholeRecord{value: "async"})
			}
			err = errors.Join(err, b.CommitAsync(func(err error) { done <- err }))
		default:
			x.put(0, string(k), wholeRecord{value: string(v)})
			err = w.db.PutAsync(k, v, func(err error) { done <- err })
		}
		if w.lacksRoom(err) {
			continue
		} else if err != nil {
			return err
		}
		calls++
		w.committed(x)
	}
	if len(w.txs) > 0 && w.txs[0].begun <= began {
		x := w.txs[0]
		w.txs = w.txs[1:]
		before := len(w.commits)
		commit := x.tx.CommitAsync
		if w.rng.IntN(2) == 0 {
			commit = x.tx.TryCommitAsync
		}
		if err := w.commit(x, func() error { return commit(func(err error) { done <- err }) }); err != nil {
			return err
		}
		if len(w.commits) > before {
			calls++
		} else if err := w.db.Sync(); err != nil {
			return err
		}
	}
	if err := w.db.Sync(); err != nil {
		return err
	}
	for range calls {
		if err := <-done; err != nil {
			return fmt.Errorf("of an asynchronous commit: %w", err)
		}
	}
	return nil
}

func (w *wholeWorld) batch() error {
	b, x := w.db.Batch(), w.newTx(nil, TxOptions{})
	for range w.rng.IntN(12) {
		k, v := wholeAnyKey(w.rng), wholeValue(w.rng)
		var err error
		switch w.rng.IntN(6) {
		case 0:
			x.remove(0, string(k))
			err = b.Delete(k)
		case 1:
			from, to := w.bounds()
			if to == nil {
				to = []byte("z")
			}
			for _, k := range keysIn(x.state.tables[0], from, to) {
				x.remove(0, k)
			}
			x.did.ranges = append(x.did.ranges, wholeRange{0, from, to})
			err = b.DeleteRange(from, to)
		case 2:
			if !w.times {
				continue
			}
			k = k[:min(len(k), 65000)]
			x.put(0, string(k), wholeRecord{string(v), hour})
			err = b.PutTTL(k, v, time.Hour)
		default:
			x.put(0, string(k), wholeRecord{value: string(v)})
			err = b.Put(k, v)
		}
		if err != nil {
			return err
		}
	}
	return w.commit(x, b.Commit)
}

// catalog enables keyspaces or expiry, or changes keyspaces by methods of DB.
func (w *wholeWorld) catalog() error {
	if !w.spaces || !w.times && w.rng.IntN(3) == 0 {
		var err error
		if w.rng.IntN(2) == 0 {
			if err = w.db.EnableKeyspaces(); err == nil {
				w.spaces = true
			}
		} else if err = w.db.EnableExpiry(); err == nil {
			w.spaces, w.times = true, true
		}
		w.expired()
		if w.lacksRoom(err) {
			return nil
		}
		return err
	}
	var x *wholeTx
	err := w.db.Update(func(tx *Tx) error {
		x = w.newTx(tx, TxOptions{})
		return w.stepCatalog(x)
	})
	if w.lacksRoom(err) {
		return nil
	}
	if err == nil {
		w.committed(x)
	}
	return err
}

func (w *wholeWorld) load() error {
	x := w.newTx(nil, TxOptions{})
	opts := LoadOptions{Sorted: w.rng.IntN(2) == 0, Replace: w.rng.IntN(3) == 0}
	name, space := "", 0
	if w.spaces && w.rng.IntN(3) > 0 {
		name = string('a' + byte(w.rng.IntN(5)))
		id, ok := w.state.names[name]
		if !ok && !opts.Replace {
			if err := w.db.Keyspace(name).Load(w.t.Context(), func(func(k, v []byte) bool) {}, opts); !errors.Is(err, ErrNoKeyspace) {
				return fmt.Errorf("load into no keyspace: %w", err)
			}
			return nil
		}
		space = id
		if opts.Replace || len(w.state.tables[id]) == 0 {
			w.numbers++
			space = w.numbers // the keyspace gets a new number: always with Replace, otherwise if at least a megabyte is loaded
			x.state.names[name], x.state.tables[space], x.own[space] = space, map[string]wholeRecord{}, true
			x.did.changed[wholeKey{catalogSpace, name}], x.did.touched[wholeKey{catalogSpace, name}] = true, true
			if ok && opts.Replace {
				x.did.removed[id] = true
			} else if err := w.endAsked(id); err != nil {
				return err
			}
		}
	}
	if opts.Replace && name == "" {
		for _, k := range keysIn(x.state.tables[space], nil, nil) {
			x.remove(space, k)
		}
	}
	x.writes, x.did.any, x.did.created = true, true, name != ""
	var keys []string
	for range w.rng.IntN(3) * w.rng.IntN(1000) {
		keys = append(keys, string(wholeAnyKey(w.rng)), fmt.Sprintf("%05d", w.rng.IntN(2000)))
	}
	if opts.Sorted {
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	records := func(yield func(k, v []byte) bool) {
		for _, k := range keys {
			if !yield([]byte(k), []byte(x.state.tables[space][k].value)) {
				return
			}
		}
	}
	small := rand.New(rand.NewPCG(w.rng.Uint64(), 1))
	for _, k := range keys {
		x.put(space, k, wholeRecord{value: wholeText[:small.IntN(400)]})
	}
	var err error
	if name == "" {
		err = w.db.Load(w.t.Context(), records, opts)
	} else {
		err = w.db.Keyspace(name).Load(w.t.Context(), records, opts)
	}
	w.log("  %q, %d records, %+v: %v", name, len(keys), opts, err)
	if w.lacksRoom(err) {
		w.expired()
		return nil
	}
	if err != nil {
		return err
	}
	w.committed(x)
	return nil
}

// endAsked rolls back transactions that have asked for a keyspace.
func (w *wholeWorld) endAsked(id int) (err error) {
	w.txs = slices.DeleteFunc(w.txs, func(x *wholeTx) bool {
		asked := x.handles[id] != nil
		if asked {
			err = errors.Join(err, x.tx.Rollback())
		}
		return asked
	})
	return err
}
