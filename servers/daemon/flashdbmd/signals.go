package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted is the error of a command that a signal has ended before it was done.
var errInterrupted = errors.New("interrupted")

// untilSignal returns a context that ends with SIGINT, SIGTERM, or SIGHUP, which comes when the terminal is closed.
// A signal that was ignored when the process was started stays ignored, as nohup and the background of a script want
// it. Go's runtime does not report whether SIGTERM was ignored.
func untilSignal() (context.Context, context.CancelFunc) {
	heeded := []os.Signal{syscall.SIGTERM}
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			heeded = append(heeded, s)
		}
	}
	return signal.NotifyContext(context.Background(), heeded...)
}
