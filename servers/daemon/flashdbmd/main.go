// Command flashdbmd serves flashdbm databases to other programs: to clients of Redis, and to programs that use the client library
// flashdbm/servers/hydra, which Read values from its memory without its help.
//
//	flashdbmd serve --dir /var/lib/flashdbm
//
// "flashdbmd serve --help" lists the settings. Each is a flag, or an environment variable.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes: 2 tells that the command line is wrong, 1 that serving has failed.
const (
	exitFailed = 1
	exitUsage  = 2
)

const help = `flashdbmd serves flashdbm databases over RESP, the protocol of Redis, and to programs that use the client library.

  flashdbmd serve --dir DIR    serve the database in DIR, which is created if it is not there
  flashdbmd serve --help       list the settings
  flashdbmd help               print this

`

// errUsage is wrapped by errors of the command line.
var errUsage = errors.New("see flashdbmd help")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, messages io.Writer) int {
	err := func() error {
		if len(args) == 0 {
			return fmt.Errorf("what is to be done? %w", errUsage)
		}
		switch args[0] {
		case "help", "--help", "-h":
			_, err := io.WriteString(out, help)
			return err
		case "serve":
			c, err := parse(args[1:], os.LookupEnv, out)
			if errors.Is(err, flag.ErrHelp) {
				return nil
			}
			if err != nil {
				return err
			}
			return serve(c, messages)
		}
		return fmt.Errorf("there is no command %q: %w", args[0], errUsage)
	}()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(messages, "flashdbmd:", err)
		return exitUsage
	}
	fmt.Fprintln(messages, "flashdbmd:", err)
	return exitFailed
}
