package dbm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

var (
	attackTime = flag.Duration("attack.time", 0, "how long TestAttack uses databases at random; 0: not at all")
	attackFrom = flag.Uint64("attack.from", 1, "first seed of TestAttack")
)

// TestAttack uses databases with everything that the API has. Several goroutines run at once. Each has its own
// keyspaces, its own range of the default keyspace, and a model of both. Compact, checkpoints, backups and checks run
// concurrently. Then all stop, everything is compared, also in a copy restored from a backup and increments, and the
// database is closed and opened, or its power is cut. A seed repeats what each goroutine does, but not how their steps
// interleave.
func TestAttack(t *testing.T) {
	if *attackTime == 0 {
		t.Skip("without -attack.time")
	}
	until, seed := time.Now().Add(*attackTime), *attackFrom
	for ; time.Now().Before(until) && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("replay:_-attack.from_%d", seed), func(t *testing.T) { attack(t, seed) })
	}
	t.Logf("%d seeds", seed-*attackFrom)
}

func attack(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewMem(1 << 30)
	defer func() { mem.Release() }()
	o := &Options{Durability: Durability(rng.IntN(3)), MemoryLimit: 1 << 20 << (2 * rng.IntN(4)), FlushInterval: 20 * time.Millisecond}
	if rng.IntN(2) == 0 {
		o.MaxFileSize = 16 << 20 << rng.IntN(3)
	}
	row := 16 << 10 << rng.IntN(4)
	reopen := func() *DB {
		db, err := open(mem, salvagePath, o)
		require.NoError(t, err)
		db.drops.row = row
		return db
	}
	db := reopen()
	defer func() { db.Close() }()
	if rng.IntN(2) == 0 {
		require.NoError(t, db.EnableExpiry())
	}
	var all []*attacker
	for n := range 1 + rng.IntN(4) {
		all = append(all, &attacker{t: t, rng: rand.New(rand.NewPCG(seed, 10+uint64(n))), name: fmt.Sprintf("w%d/", n), spaces: map[string]map[string]string{"": {}}})
	}
	var chain []*bytes.Buffer // a backup and its increments
	var token Token
	defer func() {
		for _, a := range all {
			t.Logf("%s: %d operations, %d refused; %+v", a.name, a.did, a.refused, *o)
		}
	}()
	for range 4 {
		var workers sync.WaitGroup
		for _, a := range all {
			workers.Go(func() {
				for range 60 {
					a.step(db)
				}
			})
		}
		for range 3 {
			attackBeside(t, db, rng)
		}
		workers.Wait()
		if t.Failed() {
			return
		}
		b := &bytes.Buffer{}
		var err error
		if len(chain) == 0 || rng.IntN(4) == 0 {
			chain = chain[:0]
			token, err = db.Backup(t.Context(), b)
		} else {
			token, err = db.BackupSince(t.Context(), token, b)
		}
		require.NoError(t, err)
		chain = append(chain, b)
		restored(t, chain, all)
		require.NoError(t, db.Check(t.Context()))
		if o.Durability != Durable {
			require.NoError(t, db.Sync())
		}
		switch rng.IntN(3) {
		case 0:
			require.NoError(t, db.Close())
			db = reopen()
		case 1:
			image := mem.Crash(vfs.Policy(rng.IntN(4)), rng.Uint64())
			require.NoError(t, db.Close())
			mem.Release()
			mem = image
			db = reopen()
			chain = nil
		}
		for _, a := range all {
			a.compareAll(db.View)
		}
	}
}

// attackBeside makes one call that concerns the whole database.
func attackBeside(t *testing.T, db *DB, rng *rand.Rand) {
	ctx := context.Background()
	fns := []func() error{
		db.Checkpoint, db.Sync,
		func() error { return db.Compact(ctx, nil) },
		func() error { return db.Check(ctx) },
		func() error { return db.FinishDrops(ctx) },
		func() error { _, err := db.Backup(ctx, &bytes.Buffer{}); return err },
	}
	n := rng.IntN(len(fns))
	if err := fns[n](); err != nil && !refused(err) {
		t.Errorf("%d beside the others: %v", n, err)
	}
}

// refused reports whether an operation did nothing because of a limit or of a concurrent operation.
func refused(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, ErrConflict) || errors.Is(err, ErrSnapshotTooOld)
}

// restored compares what is restored from a backup and its increments with the models.
func restored(t *testing.T, chain []*bytes.Buffer, all []*attacker) {
	path := filepath.Join(t.TempDir(), "copy")
	var increments []io.Reader
	for _, b := range chain[1:] {
		increments = append(increments, bytes.NewReader(b.Bytes()))
	}
	_, err := Restore(t.Context(), path, bytes.NewReader(chain[0].Bytes()), increments...)
	require.NoError(t, err)
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	for _, a := range all {
		a.compareAll(db.View)
	}
	require.NoError(t, db.Close())
}

// An attacker is a goroutine that uses a database. Nobody else touches the keys that begin with its name, nor the
// keyspaces whose names do.
type attacker struct {
	t      *testing.T
	rng    *rand.Rand
	name   string
	spaces map[string]map[string]string // "": the default keyspace

	did, refused int // operations
}

func (a *attacker) key() string { return fmt.Sprintf("%s%03d", a.name, a.rng.IntN(400)) }

func (a *attacker) value() string {
	size := a.rng.IntN(100)
	switch n := a.rng.IntN(100); {
	case n == 0:
		size = a.rng.IntN(200_000)
	case n < 15:
		size = a.rng.IntN(5000)
	}
	return fmt.Sprint(a.rng.Uint64()) + strings.Repeat("v", size)
}

// update runs fn in a keyspace and applies to the model what fn has done to its copy, unless it was refused.
func (a *attacker) update(db *DB, space string, fn func(tx *Tx, model map[string]string) error) {
	var model map[string]string
	run := db.Update
	if space != "" {
		run = db.Keyspace(space).Update
	}
	err := run(func(tx *Tx) error {
		model = maps.Clone(a.spaces[space])
		return fn(tx, model)
	})
	a.done(err, func() { a.spaces[space] = model })
}

// done calls fn if there was no error.
func (a *attacker) done(err error, fn func()) {
	switch {
	case err == nil:
		a.did++
		fn()
	case refused(err):
		a.refused++
	default:
		a.t.Errorf("%s: %v", a.name, err)
	}
}

// some returns one of the attacker's keyspaces.
func (a *attacker) some() string {
	names := slices.Sorted(maps.Keys(a.spaces))
	return names[a.rng.IntN(len(names))]
}

func (a *attacker) step(db *DB) {
	space := a.some()
	switch a.rng.IntN(16) {
	case 0, 1, 2:
		a.update(db, space, func(tx *Tx, model map[string]string) error { return a.write(tx, model, 1) })
	case 3, 4:
		a.update(db, space, func(tx *Tx, model map[string]string) error { return a.write(tx, model, 1+a.rng.IntN(200)) })
	case 5:
		from, to := a.key(), a.key()
		a.update(db, space, func(tx *Tx, model map[string]string) error {
			maps.DeleteFunc(model, func(k, _ string) bool { return k >= from && k < to })
			return tx.DeleteRange([]byte(from), []byte(max(from, to)))
		})
	case 6:
		key := a.name + "count"
		a.update(db, space, func(tx *Tx, model map[string]string) error {
			if v, ok := model[key]; ok {
				if old, err := tx.Get([]byte(key)); err != nil || string(old) != v {
					a.t.Errorf("%s: %q before Increment, %v", a.name, old, err)
				}
			}
			if _, err := tx.Increment([]byte(key), int64(a.rng.IntN(9))); err != nil {
				return err
			}
			v, err := tx.Get([]byte(key))
			model[key] = string(v)
			return err
		})
	case 7: // a keyspace that was dropped meanwhile
		key, ttl := a.key(), time.Duration(time.Hour)
		if a.rng.IntN(2) == 0 {
			ttl = time.Millisecond
		}
		a.update(db, space, func(tx *Tx, model map[string]string) error {
			if model[key] = a.value(); ttl < time.Second {
				delete(model, key)
				return tx.PutTTL([]byte(key), []byte("expires"), ttl)
			}
			return tx.PutTTL([]byte(key), []byte(model[key]), ttl)
		})
		time.Sleep(2 * time.Millisecond)
	case 8:
		key, value, ended := a.key(), a.value(), make(chan error, 1)
		err := db.PutAsync([]byte(key), []byte(value), func(err error) { ended <- err })
		if err == nil {
			err = <-ended
		}
		a.done(err, func() { a.spaces[""][key] = value })
	case 9:
		b, model := db.Batch(), maps.Clone(a.spaces[""])
		for range a.rng.IntN(50) {
			key, value := a.key(), a.value()
			model[key] = value
			require.NoError(a.t, b.Put([]byte(key), []byte(value)))
		}
		a.done(b.Commit(), func() { a.spaces[""] = model })
	case 10, 11:
		a.changeSpaces(db, space)
	case 12:
		a.load(db, space)
	case 13:
		s, err := db.Snapshot()
		a.done(err, func() {
			defer s.Close()
			was := &attacker{t: a.t, name: a.name, spaces: maps.Clone(a.spaces)}
			for name, model := range was.spaces {
				was.spaces[name] = maps.Clone(model)
			}
			for range 5 {
				a.step(db)
			}
			was.compareAll(s.View)
		})
	default:
		a.done(db.View(func(tx *Tx) error { return a.compare(tx, space) }), func() {})
	}
}

// write makes some puts and deletes.
func (a *attacker) write(tx *Tx, model map[string]string, n int) error {
	for range n {
		key := a.key()
		if a.rng.IntN(4) == 0 {
			delete(model, key)
			if err := tx.Delete([]byte(key)); err != nil {
				return err
			}
			continue
		}
		model[key] = a.value()
		if err := tx.Put([]byte(key), []byte(model[key])); err != nil {
			return err
		}
	}
	return nil
}

// changeSpaces makes, renames or drops a keyspace.
func (a *attacker) changeSpaces(db *DB, space string) {
	name := fmt.Sprintf("%s%d", a.name, a.rng.IntN(4))
	_, taken := a.spaces[name]
	switch {
	case !taken && (space == "" || a.rng.IntN(2) == 0):
		a.done(db.CreateKeyspace(name), func() { a.spaces[name] = map[string]string{} })
	case space == "":
	case !taken:
		a.done(db.RenameKeyspace(space, name), func() {
			a.spaces[name] = a.spaces[space]
			delete(a.spaces, space)
		})
	case a.rng.IntN(2) == 0:
		a.done(db.DropKeyspace(space), func() { delete(a.spaces, space) })
	}
}

// load loads records, into a keyspace that they replace or that keeps its own.
func (a *attacker) load(db *DB, space string) {
	records := map[string]string{}
	for range a.rng.IntN(600) {
		records[a.key()] = a.value()
	}
	keys, o := slices.Sorted(maps.Keys(records)), LoadOptions{Sorted: true}
	if a.rng.IntN(2) == 0 {
		o.Sorted = false
		a.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	}
	seq := func(yield func(k, v []byte) bool) {
		for _, k := range keys {
			if !yield([]byte(k), []byte(records[k])) {
				return
			}
		}
	}
	var err error
	if model := maps.Clone(a.spaces[space]); space == "" {
		err = db.Load(context.Background(), seq, o)
		maps.Copy(model, records)
		records = model
	} else {
		if o.Replace = a.rng.IntN(2) == 0; !o.Replace {
			maps.Copy(model, records)
			records = model
		}
		err = db.Keyspace(space).Load(context.Background(), seq, o)
	}
	a.done(err, func() { a.spaces[space] = records })
}

// compareAll compares all records of the attacker with its models.
func (a *attacker) compareAll(view func(func(*Tx) error) error) {
	a.done(view(func(tx *Tx) error {
		for space := range a.spaces {
			if err := a.compare(tx, space); err != nil {
				return err
			}
		}
		var names []string
		if tx.spaced {
			for name := range tx.Keyspaces() {
				if strings.HasPrefix(name, a.name) {
					names = append(names, name)
				}
			}
		}
		if want := slices.Sorted(maps.Keys(a.spaces))[1:]; !slices.Equal(names, want) {
			a.t.Errorf("%s: keyspaces %q, want %q", a.name, names, want)
		}
		return tx.Err()
	}), func() {})
}

// compare compares a keyspace with its model, forward and backward.
func (a *attacker) compare(tx *Tx, space string) (err error) {
	if space != "" {
		if tx, err = tx.Keyspace(space); err != nil {
			return fmt.Errorf("keyspace %q: %w", space, err)
		}
	}
	model := a.spaces[space]
	c, keys := tx.Cursor(), slices.Sorted(maps.Keys(model))
	n := 0
	for ok := c.Seek([]byte(a.name)); ok && bytes.HasPrefix(c.Key(), []byte(a.name)); ok = c.Next() {
		if n == len(keys) || string(c.Key()) != keys[n] || string(c.Value()) != model[keys[n]] {
			a.t.Errorf("%s, keyspace %q: %q = %.40q, which is not record %d of %d", a.name, space, c.Key(), c.Value(), n, len(keys))
			return c.Err()
		}
		n++
	}
	for range tx.Backward([]byte(a.name), PrefixEnd([]byte(a.name))) {
		n--
	}
	if err := errors.Join(c.Err(), tx.Err()); err != nil {
		return err
	}
	if n != 0 {
		a.t.Errorf("%s, keyspace %q: %d records are not there forward, or not backward", a.name, space, n)
	}
	return nil
}
