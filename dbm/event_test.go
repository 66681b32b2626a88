package dbm

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/internal/event"
	"flashdbm/logstore/vfs"
)

// told collects events.
type told struct {
	mu     sync.Mutex
	events []Event
}

func (l *told) add(e Event) {
	l.mu.Lock()
	l.events = append(l.events, e)
	l.mu.Unlock()
}

// of returns the events of one kind so far.
func (l *told) of(k EventKind) (events []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == k {
			events = append(events, e)
		}
	}
	return events
}

func (l *told) kinds() (kinds []EventKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestEventKinds(t *testing.T) {
	require.EqualValues(t, event.Kinds, eventKinds)
	seen := map[string]bool{}
	for k := range eventKinds {
		require.NotEmpty(t, k.String())
		require.False(t, seen[k.String()], k)
		seen[k.String()] = true
	}
	require.Equal(t, "event 200", EventKind(200).String())
	for kind, same := range map[EventKind]event.Kind{
		EventOpen: event.Open, EventRecovery: event.Recovery, EventFlush: event.Flush, EventCheckpoint: event.Checkpoint, EventClean: event.Clean,
		EventSlowSync: event.SlowSync, EventConflictStorm: event.ConflictStorm, EventOldSnapshot: event.OldSnapshot,
		EventSnapshotEnded: event.SnapshotEnded, EventBackground: event.Background, EventCorruption: event.Corruption,
		EventPoisoned: event.Poisoned, EventClose: event.Close,
	} {
		require.EqualValues(t, same, kind, kind)
		delete(seen, kind.String())
	}
	require.Empty(t, seen)
}

// TestEventsOfALife: what happens to a database from its creation to its second opening is reported in order, with
// details.
func TestEventsOfALife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var first, second told
	db, err := Open(path, &Options{Events: first.add})
	require.NoError(t, err)
	for i := range 1000 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "%04d", i*7919%1000), make([]byte, 100)))
	}
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())
	require.NoError(t, db.Close())
	kinds := first.kinds()
	require.NotContains(t, kinds, EventRecovery, "of a new file")
	require.Contains(t, kinds, EventFlush)
	require.Equal(t, []EventKind{EventClose}, kinds[len(kinds)-1:])
	kinds = slices.DeleteFunc(kinds, func(k EventKind) bool { return k.Level() != slog.LevelDebug || k == EventFlush || k == EventClean }) // these come at any time
	require.Equal(t, []EventKind{EventCheckpoint, EventCheckpoint, EventOpen, EventCheckpoint}, kinds[:4], "two checkpoints of a new file, and ours")
	for _, e := range first.events {
		require.Equal(t, path, e.Path)
		require.False(t, e.Time.IsZero())
		if e.Kind != EventClose {
			require.Positive(t, e.Took, e)
		}
		if e.Kind == EventFlush || e.Kind == EventCheckpoint {
			require.Positive(t, e.Bytes, e)
			require.Zero(t, e.Bytes%4096)
		}
	}
	db, err = Open(path, &Options{Events: second.add})
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.Equal(t, []EventKind{EventRecovery, EventOpen, EventClose}, second.kinds())
}

// TestEventsOfFailure: a slow sync, a failed sync, and the commit that the latter interrupts are reported.
func TestEventsOfFailure(t *testing.T) {
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	var events told
	db, err := open(mem, "f", &Options{Events: events.add})
	require.NoError(t, err)
	var once sync.Once
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			once.Do(func() { time.Sleep(event.SlowSyncTime) })
		}
		return nil
	})
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	require.Eventually(t, func() bool { return len(events.of(EventSlowSync)) == 1 }, patience, time.Millisecond)
	require.GreaterOrEqual(t, events.of(EventSlowSync)[0].Took, event.SlowSyncTime)
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return fmt.Errorf("the device is gone")
		}
		return nil
	})
	for range 3 {
		require.ErrorIs(t, db.Put([]byte("b"), []byte("2")), ErrFailed)
	}
	require.Error(t, db.Close())
	poisoned := events.of(EventPoisoned)
	require.Len(t, poisoned, 1, "once")
	require.ErrorIs(t, poisoned[0].Err, ErrFailed)
	require.ErrorContains(t, poisoned[0].Err, "the device is gone")
	require.Equal(t, slog.LevelError, poisoned[0].Level())
	require.Contains(t, poisoned[0].String(), "the device is gone")
	ends := events.of(EventClose)
	require.Len(t, ends, 1)
	require.ErrorIs(t, ends[0].Err, ErrFailed)
	require.Equal(t, slog.LevelDebug, ends[0].Level(), "it was told before")
	require.Equal(t, slog.LevelWarn, Event{Kind: EventClose, Err: ErrFull}.Level())
}

// TestEventsOfDamage: a read that finds damage, and an Open that does, cause events that say where the damage is.
// This also holds beside a writer.
func TestEventsOfDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	const marker = "a value that is easy to find in the file"
	db, err := Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("a"), []byte(marker)))
	require.NoError(t, db.Close())
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	damaged := bytes.ReplaceAll(file, []byte(marker), []byte(strings.ToUpper(marker)))
	require.NoError(t, os.WriteFile(path, damaged, 0o600))
	for _, opts := range []Options{{}, {ReadOnly: true}, {Beside: true}} {
		var events told
		opts.Events = events.add
		db, err := Open(path, &opts)
		if err == nil {
			_, err = db.Get([]byte("a"))
			require.ErrorIs(t, db.View(func(tx *Tx) error { _, err := tx.Get([]byte("a")); return err }), ErrCorrupt)
			require.NoError(t, db.Close())
		}
		require.ErrorIs(t, err, ErrCorrupt)
		require.Eventually(t, func() bool { return len(events.of(EventCorruption)) > 0 }, patience, time.Millisecond, "%+v", opts)
		e := events.of(EventCorruption)[0]
		require.ErrorIs(t, e.Err, ErrCorrupt)
		require.Equal(t, slog.LevelError, e.Level())
		require.Contains(t, e.String(), "damaged")
	}
	require.NoError(t, os.WriteFile(path, append(make([]byte, 2*4096), file[2*4096:]...), 0o600)) // both superblocks are lost
	var events told
	_, err = Open(path, &Options{Events: events.add})
	require.ErrorIs(t, err, ErrCorrupt)
	require.Eventually(t, func() bool { return len(events.of(EventCorruption)) == 1 }, patience, time.Millisecond)
}

// TestEventsHoldNothingUp: a function that never returns blocks neither commits nor background work nor Close.
func TestEventsHoldNothingUp(t *testing.T) {
	free := make(chan struct{})
	defer close(free)
	hangs := make(chan struct{})
	var once sync.Once
	done := make(chan error, 1)
	go func() {
		db, err := OpenMemory(&Options{Events: func(Event) {
			once.Do(func() { close(hangs) })
			<-free
		}})
		if err != nil {
			done <- err
			return
		}
		<-hangs
		for range 3 * 256 / 10 {
			if err := db.Put([]byte("k"), []byte("v")); err != nil {
				done <- err
				return
			}
			if err := db.Checkpoint(); err != nil {
				done <- err
				return
			}
		}
		done <- db.Close()
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the database waits for the function of Options.Events")
	}
}

// TestEventsUseTheDatabase: the function is called without any locks held, so it may use the database like any
// other code.
func TestEventsUseTheDatabase(t *testing.T) {
	var db *DB
	var err error
	opened := make(chan struct{})
	used := map[EventKind]int{}
	done := make(chan struct{})
	db, err = OpenMemory(&Options{RedoLimit: 1 << 20, Events: func(e Event) {
		<-opened
		if used[e.Kind]++; used[e.Kind] > 3 || e.Kind == EventClose {
			return
		}
		db.Stats()
		_ = db.Put([]byte("event"), nil)
		_ = db.Checkpoint()
		_ = db.Check(t.Context())
	}})
	require.NoError(t, err)
	close(opened)
	go func() {
		defer close(done)
		_ = churn(db, 8<<20)
		_ = db.Checkpoint()
		_ = db.Close()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the function of Options.Events cannot use the database")
	}
	require.Positive(t, used[EventCheckpoint])
	require.Positive(t, used[EventFlush])
}

// TestEventsThatPanic: if the function panics, the database continues, and the function receives the next event.
func TestEventsThatPanic(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(before)
	var events told
	db, err := OpenMemory(&Options{Events: func(e Event) {
		events.add(e)
		panic("mine")
	}})
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())
	require.Len(t, events.of(EventClose), 1)
	require.GreaterOrEqual(t, len(events.of(EventCheckpoint)), 3)
}

// TestSkippedEventsAreCounted: Stats says how many events were skipped.
func TestSkippedEventsAreCounted(t *testing.T) {
	db := newDB(t, &Options{Events: func(Event) {}})
	require.Zero(t, db.Stats().EventsSkipped)
	for range 1000 {
		db.events.Post(event.Event{Kind: event.OldSnapshot}) // at most one a minute is passed on
	}
	require.Greater(t, db.Stats().EventsSkipped, uint64(900))
}

// TestLogEvents: without Options.Events, a healthy database logs only at the debug level, while failures are logged
// at higher levels.
func TestLogEvents(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)))
	defer slog.SetDefault(before)
	mem := vfs.NewMem(2 << 30)
	defer mem.Release()
	db, err := open(mem, "logged", nil)
	require.NoError(t, err)
	require.NoError(t, churn(db, 1<<20))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())
	require.NotContains(t, log.String(), "path=logged")
	db, err = open(mem, "logged", nil)
	require.NoError(t, err)
	mem.OnOp(func(op vfs.Op) error {
		if op.Kind == vfs.OpDatasync {
			return fmt.Errorf("the device is gone")
		}
		return nil
	})
	require.Error(t, db.Put([]byte("k"), nil))
	require.Error(t, db.Close())
	require.Regexp(t, `level=ERROR msg="flashdbm: poisoned" path=logged error=.*the device is gone`, log.String())
}
