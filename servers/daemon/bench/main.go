// Command bench measures a RAMP table and its baselines in one run: figures 4 to 7 of the paper as ratios, and YCSB
// with transactions. It starts the server as a process, makes all requests itself, and writes a report with plots.
//
//	go run ./daemon/bench -out daemon/bench/report
//
// With -hydra it measures HydraDB instead, figures 9 to 11 of its paper, and Redis and memcached, which have to be
// installed.
//
// On few processors the number of transactions a second says little, because the processes share the processors. So
// the report also has the processor time and the messages of a transaction.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"flashdbm/servers/fabric/shm"
	"flashdbm/servers/fabric/tcp"
	"flashdbm/servers/ramp/machine"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings has the settings of the command line.
type settings struct {
	out        string
	each       time.Duration
	rounds     int
	partitions int
	goroutines int
	records    int
	value      int
	only       string
	rows       string
	hides      bool
}

func run() (err error) {
	var s settings
	hydraFigures := flag.Bool("hydra", false, "measure HydraDB beside Redis and memcached: figures 9 to 11")
	node := flag.String("node", "", "what -serve serves instead: a HydraDB node of one or two shards, or in stages; the benchmark starts itself so")
	serve := flag.String("serve", "", "serve a table at this socket, and at TCP, until SIGTERM; the benchmark starts itself so")
	flag.StringVar(&s.out, "out", "ramp-report", "directory of the report")
	flag.DurationVar(&s.each, "each", 500*time.Millisecond, "how long each cell is measured in a round")
	flag.IntVar(&s.rounds, "rounds", 3, "rounds; a cell's result is their median")
	flag.IntVar(&s.partitions, "partitions", 2, "partitions of the table")
	flag.IntVar(&s.goroutines, "goroutines", 4, "goroutines of each client")
	flag.IntVar(&s.records, "records", 1000, "records, as in the paper")
	flag.IntVar(&s.value, "value", 1024, "bytes of a value, as in the paper")
	flag.StringVar(&s.only, "only", "", "sections whose names contain this")
	flag.StringVar(&s.rows, "rows", "", "with -hydra: rows whose names contain this, as in \"50 % GET, zipfian\"")
	flag.BoolVar(&s.hides, "hides", false, "slots are invalid while a version of their key is prepared, as the paper has them; for a comparison with a run without")
	flag.Parse()
	switch {
	case *serve != "" && *node != "":
		return serveHydra(*node, *serve)
	case *hydraFigures:
		return hydraReport(s)
	case *serve != "":
		return serveTable(*serve, s.partitions, s.hides)
	}
	dir, err := os.MkdirTemp("", "rampbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, addrs, err := startServer(dir, s.partitions, s.hides)
	if err != nil {
		return err
	}
	defer func() {
		server.Process.Signal(syscall.SIGTERM)
		err = errors.Join(err, server.Wait())
	}()
	b := &bench{s: s, server: server.Process.Pid}
	if err := b.open(addrs); err != nil {
		return err
	}
	defer b.close()
	return b.report()
}

// serveTable is the main function of the server's process.
func serveTable(socket string, partitions int, hides bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	memory, err := shm.Open()
	if err != nil {
		return err
	}
	defer memory.Close()
	network := tcp.Open(tcp.Options{})
	defer network.Close()
	n, err := machine.Open(machine.Options{Partitions: partitions, Hides: hides, Listen: []machine.Listen{{Domain: memory, Addr: socket}, {Domain: network, Addr: "127.0.0.1:0"}}})
	if err != nil {
		return err
	}
	fmt.Printf("serving shm:%s tcp:%s\n", n.Addrs()[0], n.Addrs()[1])
	<-ctx.Done()
	return n.Close()
}

func startServer(dir string, partitions int, hides bool) (*exec.Cmd, []string, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(exe, "-serve", filepath.Join(dir, "node.sock"), "-partitions", fmt.Sprint(partitions), fmt.Sprint("-hides=", hides))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 {
		return nil, nil, fmt.Errorf("the server does not start: %q %w", line, err)
	}
	return cmd, words[1:], nil
}
