// Command flashdbmd serves flashdbm databases to other programs. These are clients of Redis; programs that use the
// client library flashdbm/servers/hydra, which Read values from the server's memory without the server; and programs
// that use flashdbm/servers/ramp (serve --table ramp), which reads and writes several keys in atomic transactions.
//
//	flashdbmd serve --dir /var/lib/flashdbm
//
// "flashdbmd serve --help" lists the settings. Each is a flag, an environment variable, or a line of a file.
// "flashdbmd help" lists the other commands: status, kv, backup, drain, recover, demo.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit codes, the same as those of command flashdbm. Scripts may rely on them.
const (
	exitAbsent = 1 // the key is not there
	exitUsage  = 2 // the command line, a variable or the file of settings is wrong
	exitFailed = 3 // anything else
)

const help = `flashdbmd serves flashdbm databases over RESP, the protocol of Redis, and to programs that use the client library.

  flashdbmd serve --dir DIR    serve the database in DIR, which is created if it is not there
  flashdbmd status --dir DIR   print what the node of a directory is doing
  flashdbmd kv --dir DIR ...   get, put, scan ... keys of a running node
  flashdbmd backup --dir DIR --to NEW  copy what a running node has into a directory that a node can be started with
  flashdbmd drain --node N ... have other nodes take over all that a node of a cluster has, so that it can be stopped
  flashdbmd add --node N ...   let a node that was drained have shards again
  flashdbmd shards ...         print which shards share a cluster's keys; add or drain shards while everything is served
  flashdbmd recover ...        let a node continue with a shard of which only an outdated copy is left
  flashdbmd etcd --dir DIR     an etcd of one process, to try a cluster on one machine
  flashdbmd demo               load a million records, compare Reads with messages, kill the server, verify
  flashdbmd demo ramp          atomic transactions of several keys: clients and the server are killed, nothing is seen in part
  flashdbmd help               print this

Each command lists its settings with --help. A flag may begin with one dash or two.
`

// errUsage is wrapped by errors of the command line and of settings.
var errUsage = errors.New("see flashdbmd help")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, messages io.Writer) int {
	err := func() error {
		if len(args) == 0 {
			return fmt.Errorf("no command given: %w", errUsage)
		}
		switch args[0] {
		case "help", "--help", "-h":
			_, err := io.WriteString(out, help)
			return err
		case "serve":
			c, err := parse(args[1:], os.LookupEnv, out)
			if err != nil {
				return err
			}
			return serve(c, messages)
		case "status":
			return runStatus(args[1:], os.LookupEnv, out)
		case "kv":
			return runKV(args[1:], os.LookupEnv, os.Stdin, out)
		case "recover":
			return runRecover(args[1:], os.LookupEnv, out)
		case "backup":
			return runBackup(args[1:], os.LookupEnv, out)
		case "drain", "add":
			return runDrain(args[0], args[1:], os.LookupEnv, out)
		case "shards":
			return runShards(args[1:], os.LookupEnv, out)
		case "etcd":
			return runEtcd(args[1:], os.LookupEnv, messages)
		case "demo":
			if len(args) > 1 && args[1] == "ramp" {
				if dir := os.Getenv(orphanVariable); dir != "" {
					return runOrphan(dir)
				}
				return runDemoRamp(args[2:], out)
			}
			return runDemo(args[1:], out)
		}
		return fmt.Errorf("there is no command %q: %w", args[0], errUsage)
	}()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(messages, "flashdbmd:", err)
		return exitUsage
	case errors.Is(err, errAbsent):
		fmt.Fprintln(messages, "flashdbmd:", err)
		return exitAbsent
	}
	fmt.Fprintln(messages, "flashdbmd:", err)
	return exitFailed
}
