package main

import (
	"context"
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
