//go:build linux

package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"flashdbm/mvcc"
)

// still is memory of the front library through which the engine shows it a tree that is not changing.
// front/still.h has the rules and the C structure. The engine calls show and hide alternately, with the
// database's mu held for writing.
type still struct {
	entered atomic.Uint64 // number of readers that have entered, and stillHidden
	left    atomic.Uint64 // number of readers that have left
	root    uint64
	moved   uintptr // *[places]mvcc.MovedPage
	places  uint64
	shift   uint32
	chunks  uint32
	chunk   [stillChunks]stillChunk
}

type stillChunk struct{ pages, checked, overridden uintptr }

const (
	stillHidden = 1 << 63
	stillChunks = 64
)

// shown is a still with Go's state of it. The zero shown has no still and shows nothing.
type shown struct {
	still  *still
	wait   time.Duration  // how long hide waits for readers to leave
	pinned runtime.Pinner // Go memory that is shown
	tried  bool           // show was tried since the tree was last hidden
	open   bool           // the tree is shown
}

// goneAfter is how long hide waits for readers. A reader takes microseconds; a reader that takes longer than
// this is assumed never to leave.
const goneAfter = time.Second

// abandoned keeps the memory shown to readers that never left.
var abandoned struct {
	sync.Mutex
	pinned []runtime.Pinner
}

// due reports whether show should be called: the tree is unchanging and not shown.
func (s *shown) due(e *mvcc.Engine) bool {
	return s.still != nil && !s.tried && e.IsStill()
}

// show shows the tree if it is one that does not change.
func (s *shown) show(e *mvcc.Engine) {
	if !s.due(e) {
		return
	}
	s.tried = true
	t, ok := e.Still()
	if !ok || len(t.Mapped) > stillChunks {
		return
	}
	c := s.still
	for i, m := range t.Mapped {
		checked, overridden := unsafe.SliceData(m.Checked), unsafe.SliceData(m.Overridden)
		s.pinned.Pin(checked)
		s.pinned.Pin(overridden)
		c.chunk[i] = stillChunk{
			pages:      uintptr(unsafe.Pointer(unsafe.SliceData(m.Pages))),
			checked:    uintptr(unsafe.Pointer(checked)),
			overridden: uintptr(unsafe.Pointer(overridden)),
		}
	}
	moved := unsafe.SliceData(t.Moved)
	s.pinned.Pin(moved)
	c.moved, c.places = uintptr(unsafe.Pointer(moved)), uint64(len(t.Moved))
	c.root, c.shift, c.chunks = t.Root, uint32(t.Shift), uint32(len(t.Mapped))
	s.open = true
	c.entered.And(^uint64(stillHidden))
}

// hide hides the tree. It returns true when nobody reads it any more. It returns false if a reader does not leave:
// then the shown memory must stay for ever, and nothing will be shown any more.
func (s *shown) hide() (clear bool) {
	s.tried = false
	if !s.open {
		return true
	}
	s.open = false
	c := s.still
	c.entered.Or(stillHidden)
	// left is loaded first: if it equals entered, which is loaded later, all readers that entered have left.
	since := time.Now()
	for pause := time.Microsecond; c.left.Load() != c.entered.Load()&^stillHidden; pause = min(2*pause, time.Millisecond) {
		if time.Since(since) > s.wait {
			abandoned.Lock()
			defer abandoned.Unlock()
			abandoned.pinned = append(abandoned.pinned, s.pinned)
			s.still, s.pinned = nil, runtime.Pinner{}
			return false
		}
		time.Sleep(pause)
	}
	s.pinned.Unpin()
	return true
}

// calls returns the number of readers so far.
func (s *shown) calls() uint64 {
	if s.still == nil {
		return 0
	}
	return s.still.entered.Load() &^ stillHidden
}
