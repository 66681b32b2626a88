// Command flashdbm reads, writes, checks, dumps and loads flashdbm databases
// from a shell.
//
// Standard output carries results only, byte for byte. Messages and progress go to standard error, progress only if
// that is a terminal. The exit code is 0 for done or found, 1 for not found, 2 for wrong usage, 3 for any other
// error. Run "flashdbm help" for the commands.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

// run executes one command line and returns its exit code. It never calls os.Exit, so databases are closed and
// profiles written in every case.
func run(args []string) int {
	ctx, stop := untilSignal(context.Background())
	defer stop()

	p := &program{ctx: ctx, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	for fd, stream := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		if wasClosed(fd) {
			*stream = closedStream((*stream).Name())
		}
	}
	root := newRootCommand(p)
	root.SetArgs(args)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		withoutBackquotes(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	if p.texts.err != nil {
		p.running, err = true, p.texts.err
	}
	return p.finish(cmd, err)
}
