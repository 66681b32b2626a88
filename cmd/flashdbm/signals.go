package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends with the first signal, so that the command stops at a clean point and
// removes its temporary files. SIGHUP comes when the terminal is closed. The first signal also restores the default
// action: a second one ends a command that is stuck, for example on a pipe that nobody reads.
//
// An interrupt that is ignored stays ignored: a shell starts background programs of a script so, and they should
// survive an interrupt from the keyboard. The same holds for SIGHUP, which nohup ignores. Go's runtime does not
// report whether SIGTERM was ignored.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	var heeded []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	if len(heeded) == 0 { // NotifyContext without signals would catch all
		return context.WithCancel(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, heeded...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// untilReadersGo returns a context that also ends when a command writes to standard output or standard error, and it is
// a pipe that nobody reads any more. Then the system ends a command at once; this one has something to remove before.
func untilReadersGo(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGPIPE)
}

// untilDone returns a reader of the file whose Read ends when the context does. A pipe or a terminal may return
// nothing for any length of time, and even then the first signal must end the command.
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

// A waitingReader has at most one Read of the file under way. When the context ends, the goroutine of that Read
// stays blocked in the system.
type waitingReader struct {
	ctx    context.Context
	read   func()
	pieces chan piece
	room   []byte
	piece  // the part of the last piece that Read has not returned yet
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
