package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

func (w *wholeWorld) snapshot() error {
	if len(w.snaps) > 3 {
		return w.lookBack()
	}
	if err := w.db.Sync(); err != nil {
		return err
	}
	s, err := w.db.Snapshot()
	if err != nil {
		return err
	}
	w.snaps = append(w.snaps, wholeSnap{s, nil, w.state.clone()})
	return nil
}

func (w *wholeWorld) lookBack() error {
	if len(w.snaps) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.snaps))
	s := &w.snaps[i]
	var err error
	switch w.rng.IntN(4) {
	case 0:
		tx, err := s.snap.Begin()
		if err != nil {
			return err
		}
		s.txs = append(s.txs, tx)
	case 1:
		if len(s.txs) > 0 {
			err = s.state.sees(s.txs[0], w.eye)
			err = errors.Join(err, s.txs[0].Rollback())
			s.txs = s.txs[1:]
		}
	case 2:
		err = s.snap.View(func(tx *Tx) error { return s.state.sees(tx, w.eye) })
	case 3:
		err = s.snap.Close()
		for _, tx := range s.txs {
			err = errors.Join(err, s.state.sees(tx, w.eye), tx.Rollback())
		}
		w.snaps = slices.Delete(w.snaps, i, i+1)
	}
	if w.lacksRoom(err) {
		return nil
	}
	return err
}

// look compares the database with the newest state.
func (w *wholeWorld) look() error {
	if err := w.db.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	err := w.db.View(func(tx *Tx) error { return w.state.sees(tx, w.eye) })
	if err == nil && w.eye.IntN(3) == 0 {
		if err = w.db.Check(w.t.Context()); err != nil {
			err = fmt.Errorf("check: %w", err)
		}
	}
	return err
}

func (w *wholeWorld) lookBeside() (err error) {
	if err := w.db.Sync(); err != nil {
		return err
	}
	if w.beside == nil {
		if w.beside, err = Open(w.db.Path(), &Options{Beside: true}); err != nil {
			return err
		}
	}
	err = w.beside.View(func(tx *Tx) error { return w.state.sees(tx, w.eye) })
	if err == nil && w.rng.IntN(4) == 0 {
		err = w.beside.Close()
		w.beside = nil
	}
	if errors.Is(err, ErrSnapshotTooOld) {
		return nil
	}
	return err
}

func (w *wholeWorld) work() (err error) {
	ctx := w.t.Context()
	what := w.rng.IntN(7)
	w.log("  work %d", what)
	switch what {
	case 0:
		err = w.db.Sync()
	case 1, 2:
		err = w.db.Checkpoint()
	case 3:
		err = w.db.Compact(ctx, nil)
	case 4:
		_, err = w.db.DeleteExpired(ctx)
	case 5:
		err = w.db.FinishDrops(ctx)
	case 6:
		err = w.db.Check(ctx)
	}
	if w.lacksRoom(err) {
		return nil
	}
	return err
}

func (w *wholeWorld) backup() error {
	since := 0
	var b bytes.Buffer
	var token Token
	var err error
	if len(w.backups) == 0 || w.rng.IntN(8) == 0 {
		if token, err = w.db.Backup(w.t.Context(), &b); err == nil {
			w.backups = nil
			if w.copy != nil {
				err = w.copy.Close()
				w.copy = nil
			}
		}
	} else {
		since = w.rng.IntN(len(w.backups))
		token, err = w.db.BackupSince(w.t.Context(), w.backups[since].token, &b)
	}
	if w.lacksRoom(err) {
		return nil
	}
	if err == nil {
		w.log("  from %d on, %d bytes", since, b.Len())
		w.backups = append(w.backups, wholeBackup{token, b.Bytes(), w.state})
	}
	return err
}

// restore restores the newest backup and compares the copy.
func (w *wholeWorld) restore() error {
	if len(w.backups) == 0 {
		return nil
	}
	n := 1 + w.rng.IntN(len(w.backups))
	var increments []io.Reader
	for _, b := range w.backups[1:n] {
		increments = append(increments, bytes.NewReader(b.data))
	}
	w.files++
	path := filepath.Join(w.dir, fmt.Sprint("restored", w.files))
	token, err := Restore(w.t.Context(), path, bytes.NewReader(w.backups[0].data), increments...)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	if token != w.backups[n-1].token {
		return errors.New("the restored database has another token")
	}
	db, err := Open(path, nil)
	if err != nil {
		return err
	}
	err = db.View(func(tx *Tx) error { return w.backups[n-1].state.sees(tx, w.eye) })
	return errors.Join(err, db.Check(w.t.Context()), db.Close())
}

// increment brings the copy to the state of the next backup, or of a later one.
func (w *wholeWorld) increment() (err error) {
	if len(w.backups) == 0 {
		return nil
	}
	if w.copy == nil {
		w.files++
		path := filepath.Join(w.dir, fmt.Sprint("copy", w.files))
		if _, err = Restore(w.t.Context(), path, bytes.NewReader(w.backups[0].data)); err != nil {
			return err
		}
		if w.copy, err = Open(path, &Options{Durability: Durability(w.rng.IntN(3)), MemoryLimit: 1 << 20}); err != nil {
			return err
		}
		w.copyAt = 0
	}
	for w.copyAt < len(w.backups)-1 {
		w.copyAt++
		b := w.backups[w.copyAt]
		token, err := w.copy.ApplyBackup(w.t.Context(), w.backups[w.copyAt-1].token, bytes.NewReader(b.data))
		if err != nil || token != b.token {
			return fmt.Errorf("increment %d: %w", w.copyAt, err)
		}
	}
	if err := w.copy.Sync(); err != nil {
		return err
	}
	return w.copy.View(func(tx *Tx) error { return w.backups[w.copyAt].state.sees(tx, w.eye) })
}

// follow follows the database from the copy's state until the copy has the newest state.
func (w *wholeWorld) follow() error {
	if err := w.increment(); err != nil || w.copy == nil {
		return err
	}
	if err := w.db.Sync(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	have := w.backups[w.copyAt].token
	mark := fmt.Sprint(w.act)
	wait := make(chan error, 1)
	go func() {
		wait <- w.db.Follow(ctx, have, time.Millisecond, func(token Token, r io.Reader) (err error) {
			if have, err = w.copy.ApplyBackup(ctx, token, r); err != nil {
				return err
			}
			if v, err := w.copy.Get([]byte("mark")); err == nil && string(v) == mark {
				cancel()
			}
			return nil
		})
	}()
	for range w.rng.IntN(4) {
		if err := w.alone(); err != nil {
			return err
		}
	}
	x := w.newTx(nil, TxOptions{})
	x.put(0, "mark", wholeRecord{value: mark})
	if err := w.db.Put([]byte("mark"), []byte(mark)); err != nil {
		cancel()
		<-wait
		if w.lacksRoom(err) {
			err = w.copy.Close()
			w.copy = nil
		}
		return err
	}
	w.committed(x)
	if err := w.db.Sync(); err != nil {
		return err
	}
	if err := <-wait; !errors.Is(err, context.Canceled) {
		if w.lacksRoom(err) {
			err = w.copy.Close()
			w.copy = nil
		}
		return err
	}
	if err := w.copy.Sync(); err != nil {
		return err
	}
	if err := w.copy.View(func(tx *Tx) error { return w.state.sees(tx, w.eye) }); err != nil {
		return err
	}
	w.backups = nil
	err := w.copy.Close()
	w.copy = nil
	return err
}

func (w *wholeWorld) endAll() (err error) {
	for _, x := range w.txs {
		err = errors.Join(err, x.tx.Rollback())
	}
	for _, s := range w.snaps {
		for _, tx := range s.txs {
			err = errors.Join(err, tx.Rollback())
		}
		err = errors.Join(err, s.snap.Close())
	}
	w.txs, w.snaps = nil, nil
	if w.beside != nil {
		err = errors.Join(err, w.beside.Close())
		w.beside = nil
	}
	return err
}

func (w *wholeWorld) reopen() error {
	beside := w.beside
	w.beside = nil
	if w.rng.IntN(2) == 0 && beside != nil {
		if err := beside.Close(); err != nil {
			return err
		}
		beside = nil
	}
	if err := w.endAll(); err != nil {
		return err
	}
	if err := w.db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	w.beside = beside
	w.opts = w.drawOptions()
	if err := w.open(); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return w.look()
}
