package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"flashdbm/dbm"
)

// A Load says what a process does with the database.
type Load struct {
	Options dbm.Options
	Large   bool          // also write values of more than 1 MiB
	CloseIn time.Duration // close the database after this time; 0: never
	Most    uint64        // transactions of each stream; 0: no limit
	Pause   time.Duration // between two transactions of a stream
}

// Run opens the database at path and continues the streams, until it is killed or the load is done. It is the main
// function of a process of its own.
func Run(path string, r *Record, l Load) error {
	if err := r.raise(stageField, uint64(Opening)); err != nil {
		return err
	}
	began := time.Now()
	db, err := dbm.Open(path, &l.Options)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	opened := time.Since(began)
	w := &writer{db: db, record: r, load: l}
	if err := w.begin(opened); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if l.CloseIn > 0 {
		time.AfterFunc(l.CloseIn, func() { cancel(errEnough) })
	}
	if err := w.work(ctx, cancel); err != nil {
		return err
	}
	if err := r.raise(stageField, uint64(Closing)); err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for s := range Count {
		if err := r.note(durable, s, w.returned[s].Load()); err != nil {
			return err
		}
	}
	return r.raise(stageField, uint64(Closed))
}

var errEnough = errors.New("time to close")

type writer struct {
	db       *dbm.DB
	record   *Record
	load     Load
	returned [Count]atomic.Uint64
}

// begin notes as durable what the database holds: recovery makes everything durable
// that it shows.
func (w *writer) begin(opened time.Duration) error {
	err := w.db.View(func(tx *dbm.Tx) error {
		for s := range Count {
			n, err := getNumber(tx, numberKey(s))
			if err != nil {
				return err
			}
			w.returned[s].Store(n)
			for _, which := range []int{found, begun, returned, durable} {
				if err := w.record.note(which, s, n); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.record.raise(openField, uint64(max(opened, 1))); err != nil {
		return err
	}
	return w.record.raise(stageField, uint64(Running))
}

func getNumber(tx *dbm.Tx, key []byte) (uint64, error) {
	v, err := tx.Get(key)
	if errors.Is(err, dbm.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return decodeNumber(v)
}

// work runs the streams and a reader, and, if commits are not durable by themselves, a goroutine that syncs at
// intervals.
func (w *writer) work(ctx context.Context, cancel context.CancelCauseFunc) error {
	var streams, others sync.WaitGroup
	run := func(group *sync.WaitGroup, fn func(context.Context) error) {
		group.Go(func() {
			if err := fn(ctx); err != nil {
				cancel(err)
			}
		})
	}
	for s := range Count {
		run(&streams, func(ctx context.Context) error { return w.stream(ctx, s) })
	}
	run(&others, w.read)
	if w.load.Options.Durability != dbm.Durable {
		run(&others, w.sync)
	}
	streams.Wait()
	cancel(errEnough)
	others.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// stream runs the transactions of one stream.
func (w *writer) stream(ctx context.Context, s int) error {
	for n := w.returned[s].Load() + 1; ctx.Err() == nil && (w.load.Most == 0 || n <= w.load.Most); n++ {
		if err := w.record.note(begun, s, n); err != nil {
			return err
		}
		t := transaction{s, n, w.load.Large}
		err := w.run(t)
		for errors.Is(err, dbm.ErrConflict) { // many conflicts in a row can happen while the system delays other streams
			err = w.run(t)
		}
		if err != nil {
			return fmt.Errorf("transaction %d of stream %d: %w", n, s, err)
		}
		w.returned[s].Store(n)
		if err := w.record.note(returned, s, n); err != nil {
			return err
		}
		if w.load.Options.Durability == dbm.Durable {
			if err := w.record.note(durable, s, n); err != nil {
				return err
			}
		}
		time.Sleep(w.load.Pause)
	}
	return nil
}

func (w *writer) run(t transaction) error {
	if t.single() {
		return w.db.Put(numberKey(t.stream), encodeNumber(t.number))
	}
	return w.db.Update(t.run)
}

func (t transaction) run(tx *dbm.Tx) error {
	if t.stream < Chained {
		n, err := getNumber(tx, orderKey)
		if err != nil {
			return err
		}
		if err := tx.Put(orderKey, encodeNumber(n+1)); err != nil {
			return err
		}
	}
	for _, w := range t.writes() {
		key := slotKey(t.stream, w.slot)
		var err error
		if w.delete {
			err = tx.Delete(key)
		} else {
			err = tx.Put(key, w.value())
		}
		if err != nil {
			return err
		}
	}
	return tx.Put(numberKey(t.stream), encodeNumber(t.number))
}

// read checks the numbers again and again. In Durable mode, what a View has shown counts as promised.
func (w *writer) read(ctx context.Context) error {
	for ctx.Err() == nil {
		var seen Numbers
		err := w.db.View(func(tx *dbm.Tx) error {
			var sum uint64
			for s := range Count {
				n, err := getNumber(tx, numberKey(s))
				if err != nil {
					return err
				}
				seen[s] = n
				if s < Chained {
					sum += n
				}
			}
			order, err := getNumber(tx, orderKey)
			if err == nil && order != sum {
				err = fmt.Errorf("a snapshot counts %d transactions of the chained streams and shows %d", order, sum)
			}
			return err
		})
		if err != nil {
			return err
		}
		for s := range Count {
			if w.load.Options.Durability == dbm.Durable {
				if err := w.record.note(durable, s, seen[s]); err != nil {
					return err
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// sync syncs at intervals. After each sync, what had returned before it counts as promised.
func (w *writer) sync(ctx context.Context) error {
	for ctx.Err() == nil {
		var before Numbers
		for s := range Count {
			before[s] = w.returned[s].Load()
		}
		if err := w.db.Sync(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
		for s := range Count {
			if err := w.record.note(durable, s, before[s]); err != nil {
				return err
			}
		}
		time.Sleep(3 * time.Millisecond)
	}
	return nil
}
