package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that the first signal ends, which asks the
// command to stop at a clean point. It also restores the default action, so a
// second one ends a command that is stuck, for example on a pipe nobody reads.
//
// An interrupt that is ignored stays so: who starts a program in the background
// of a script wants it to outlive that of the keyboard. Of SIGTERM the runtime
// does not tell whether it was.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	var heeded []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	if len(heeded) == 0 { // NotifyContext would take that for all signals
		return context.WithCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, heeded...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// untilDone returns a reader of the file whose Read ends when the context does. A pipe or a terminal may give nothing for as long as one
// likes, and the first signal is to end the command then too.
func untilDone(ctx context.Context, file *os.File) io.Reader {
	if status, err := file.Stat(); err == nil && status.Mode().IsRegular() {
		return file
	}
	r := &waitingReader{ctx: ctx, pieces: make(chan piece), room: make([]byte, 64<<10)}
	r.read = func() {
		n, err := file.Read(r.room)
		select {
		case r.pieces <- piece{r.room[:n], err}:
		case <-ctx.Done():
		}
	}
	return r
}

// A waitingReader has one Read of the file under way at most, whose goroutine stays behind in the system when the context ends.
type waitingReader struct {
	ctx    context.Context
	read   func()
	pieces chan piece
	room   []byte
	piece  // what is left of the last one
}

type piece struct {
	bytes []byte
	err   error
}

func (r *waitingReader) Read(p []byte) (int, error) {
	if len(r.bytes) == 0 && r.err == nil {
		go r.read()
		select {
		case r.piece = <-r.pieces:
		case <-r.ctx.Done():
			return 0, r.ctx.Err()
		}
	}
	n := copy(p, r.bytes)
	if r.bytes = r.bytes[n:]; len(r.bytes) == 0 {
		return n, r.err
	}
	return n, nil
}
