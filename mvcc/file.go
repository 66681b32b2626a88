package mvcc

import (
	"errors"
	"fmt"

	"flashdbm/internal/event"
	"flashdbm/logstore"
	"flashdbm/override"
)

// file is what all parts of the engine use. Its fields do not change once recovery has begun to use them.
type file struct {
	opts  Options
	store *logstore.Store
	pages *override.Pages
	known known // what Stats returns
}

// Failed returns the error that poisoned the engine, or nil.
func (f *file) Failed() error { return f.store.Failed() }

// Fail poisons the engine for a reason that its user has found, and returns the error that the engine returns from
// now on.
func (f *file) Fail(err error) error { return f.store.Fail(err) }

func (f *file) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("flashdbm: %s %s: %w", op, f.store.Path(), err)
}

func (f *file) report(what string, err error) {
	f.Met(err)
	if err != nil && !errors.Is(err, logstore.ErrFailed) {
		f.post(event.Event{Kind: event.Background, What: what, Err: err})
	}
}

// Path returns the name of the file.
func (e *Engine) Path() string { return e.store.Path() }
