//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *still) hidden() bool { return s.entered.Load()&stillHidden != 0 }

func newStill() *still {
	s := &still{}
	s.entered.Store(stillHidden)
	return s
}

// TestStillShown: a tree is shown while it is only read. Before a writer gets the lock, which waits for the
// readers, the tree is hidden.
func TestStillShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	w := openTest(t, path, settings{})
	for i := range 3000 {
		put(t, w, fmt.Sprint("key", i), "value")
	}
	require.NoError(t, w.letGo())

	s := newStill()
	r := openTest(t, path, settings{readOnly: true, still: s})
	assert.True(t, s.hidden(), "before the first call")
	look(r, t, "key1")
	require.False(t, s.hidden())
	assert.EqualValues(t, 1, s.chunks)

	// A reader is reading when the writer comes.
	s.entered.Add(1)
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		put(t, w, "key1", "new")
	}()
	require.Eventually(t, s.hidden, patience, time.Millisecond, "the tree is not hidden from who comes now")
	time.Sleep(20 * time.Millisecond)
	select {
	case <-stored:
		t.Fatal("written while a reader was there")
	default:
	}
	s.left.Add(1)
	<-stored

	value, _ := look(r, t, "key1")
	assert.Equal(t, "new", value)
	assert.True(t, s.hidden(), "beside a writer")
	require.NoError(t, w.letGo())
	for end := time.Now().Add(patience); s.hidden(); time.Sleep(10 * time.Millisecond) {
		look(r, t, "key1")
		require.True(t, time.Now().Before(end), "never shown again")
	}
	require.NoError(t, r.close())
	assert.True(t, s.hidden(), "after close")
}

// TestStillIdle: a database whose shown tree is read is in use, not idle.
func TestStillIdle(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "db.pag")
	w := openTest(t, path, settings{})
	put(t, w, "key", "value")
	require.NoError(t, w.letGo())
	s := newStill()
	r := openTest(t, path, settings{readOnly: true, still: s})
	r.idle = idleAfter
	used := time.Now()
	look(r, t, "key")
	for end := used.Add(idleAfter + idleAfter/2); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if s.hidden() { // a busy machine may have delayed this loop
			require.GreaterOrEqual(t, time.Since(used), idleAfter, "taken for idle")
			look(r, t, "key")
		}
		used = time.Now()
		s.entered.Add(1)
		s.left.Add(1)
	}
	require.Eventually(t, s.hidden, patience, 10*time.Millisecond, "never idle")
}

// TestStillNotWritable: the tree of an engine that writes is not shown.
func TestStillNotWritable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.pag")
	s := newStill()
	w := openTest(t, path, settings{still: s})
	put(t, w, "key", "value")
	look(w, t, "key")
	assert.True(t, s.hidden(), "a tree that can change")
}

// TestStillAbandoned: a reader that never finishes, as after a longjmp out of a signal handler, does not make
// others wait for ever, and what it may read stays.
func TestStillAbandoned(t *testing.T) {
	t.Parallel() // it mostly waits
	path := filepath.Join(t.TempDir(), "db.pag")
	w := openTest(t, path, settings{})
	put(t, w, "key", "value")
	require.NoError(t, w.letGo())

	s := newStill()
	r := openTest(t, path, settings{readOnly: true, still: s})
	r.shown.wait = goneAfter
	look(r, t, "key")
	require.False(t, s.hidden())
	require.True(t, isMapped(t, s.chunk[0].pages))
	s.entered.Add(1)

	put(t, w, "key", "new")
	assert.True(t, s.hidden())
	assert.True(t, isMapped(t, s.chunk[0].pages))
	require.NoError(t, w.letGo())
	for range 100 {
		value, _ := look(r, t, "key")
		assert.Equal(t, "new", value)
		time.Sleep(2 * time.Millisecond)
	}
	assert.True(t, s.hidden(), "shown again")
	require.NoError(t, r.close())
	assert.True(t, isMapped(t, s.chunk[0].pages))
}

func isMapped(t *testing.T, at uintptr) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
		require.NoError(t, err)
		if from <= at && at < to {
			return strings.Contains(line, "db.pag")
		}
	}
	return false
}

// TestCloseLeft: a call that was left and never ends does not make a close wait for ever.
func TestCloseLeft(t *testing.T) {
	t.Parallel() // it mostly waits
	d := openTest(t, filepath.Join(t.TempDir(), "db.pag"), settings{})
	put(t, d, "key", "value")
	require.NoError(t, d.enter())
	assert.ErrorIs(t, d.close(), errLeft)
	assert.Equal(t, syscall.EDEADLK, errno(errLeft))
	d.leave()
}

// TestOwnedBesideCalls: overlapping calls without a gap between them are not taken for a call that was left.
func TestOwnedBesideCalls(t *testing.T) {
	d := openTest(t, filepath.Join(t.TempDir(), "db.pag"), settings{})
	put(t, d, "key", "value")
	quit := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				if d.enter() == nil {
					time.Sleep(500 * time.Microsecond)
					d.leave()
				}
			}
		})
	}
	least := leftAfter
	for range 20 {
		time.Sleep(2 * time.Millisecond)
		begin := time.Now()
		assert.NoError(t, d.letGo())
		least = min(least, time.Since(begin))
	}
	assert.Less(t, least, time.Second) // a busy machine may delay it, but not every time
	close(quit)
	all.Wait()
	require.NoError(t, d.close())
}
