// Command flashdbm reads, writes, checks, dumps and loads flashdbm databases
// from a shell.
//
// Standard output carries results only, byte for byte; messages and progress
// go to standard error, progress only where that is a terminal. The exit code
// is 0 for done or found, 1 for not found, 2 for wrong usage, 3 for any other
// error. Run "flashdbm help" for the commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns its exit code. It returns instead
// of exiting so that databases are closed and profiles written on every way out.
func run(args []string) int {
	// The first signal asks the command to stop at a clean point. It also
	// restores the default action, so a second one ends a command that is
	// stuck, for example on a pipe nobody reads.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	root := newRootCommand(p)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return p.finish(cmd, err)
}
