package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

const (
	progressDelay    = 500 * time.Millisecond // short work shows nothing
	progressInterval = 200 * time.Millisecond
	// progressColumns is assumed if the width of the terminal is unknown.
	progressColumns = 80
)

// progress shows how far long work has come, on one line of a terminal, which Stop erases. A nil progress, as for a
// pipe, does nothing.
//
// Add may be called by any goroutine; Stop only once.
type progress struct {
	out     io.Writer
	columns int
	label   string
	format  func(int64) string
	total   int64 // 0: unknown
	started time.Time

	done atomic.Int64   // sum of all Add; read by draw
	quit chan struct{}  // closed by Stop, ends the drawing goroutine
	gone sync.WaitGroup // the drawing goroutine
}

// startProgress starts to show progress towards total (0: unknown), as counted by Add and formatted by format. It
// returns nil if standard error is not a terminal. It also returns nil if writesOutput is set and standard output
// is a terminal, because the line would appear amid the output.
func (p *program) startProgress(label string, format func(int64) string, total int64, writesOutput bool) *progress {
	if !isTerminal(p.stderr) || writesOutput && isTerminal(p.stdout) {
		return nil
	}
	columns, _, err := term.GetSize(int(p.stderr.Fd()))
	if err != nil || columns <= 0 {
		columns = progressColumns
	}
	m := &progress{
		out: p.stderr, columns: columns, label: label, format: format, total: total,
		started: time.Now(), quit: make(chan struct{}),
	}
	m.gone.Go(m.run)
	return m
}

// Add counts n more units as done.
func (m *progress) Add(n int64) {
	if m != nil {
		m.done.Add(n)
	}
}

// Stop erases the line. Nothing is drawn after it returns.
func (m *progress) Stop() {
	if m != nil {
		close(m.quit)
		m.gone.Wait()
	}
}

func (m *progress) run() {
	delay := time.NewTimer(progressDelay)
	defer delay.Stop()
	select {
	case <-m.quit:
		return
	case <-delay.C:
	}
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		fmt.Fprintf(m.out, "\r\x1b[K%.*s", m.columns-1, m.line(time.Since(m.started)))
		select {
		case <-m.quit:
			fmt.Fprint(m.out, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}

// line describes the work after elapsed time, for example
// "load: 1.5 GiB of 3.0 GiB (50%), 12.4s, 12.4s left".
func (m *progress) line(elapsed time.Duration) string {
	done := m.done.Load()
	text := m.label + ": "
	switch {
	case m.total > 0:
		text += fmt.Sprintf("%s of %s (%d%%), ", m.format(done), m.format(m.total), int(100*float64(done)/float64(m.total)))
	case done > 0:
		text += m.format(done) + ", "
	}
	text += elapsed.Round(time.Second / 10).String()
	if done > 0 && done < m.total {
		left := time.Duration(float64(elapsed) * float64(m.total-done) / float64(done))
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
