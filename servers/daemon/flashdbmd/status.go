package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"flashdbm/servers/daemon/resp"
	"flashdbm/servers/hydra/machine"
	"flashdbm/servers/ramp/partition"
)

// adminSocket is the socket in the node's directory by which the node answers flashdbmd status.
const adminSocket = "admin.sock"

// status is what flashdbmd status reports. Its fields are stable: fields are added, and none changes its meaning.
type status struct {
	Process     int       `json:"pid"`
	Began       time.Time `json:"began"`
	Directory   string    `json:"directory"`
	RESP        string    `json:"resp"`
	Socket      string    `json:"socket"`
	Connections int       `json:"connections"` // of RESP
	Commands    int64     `json:"commands"`    // of RESP, since the start
	Processor   float64   `json:"processor_seconds"`
	machine.Status
	FileBytes int64 `json:"file_bytes"` // of all shards
	// The fields of a RAMP table, which has partitions instead of shards.
	Table      string            `json:"table,omitempty"`
	Partitions []partition.Stats `json:"partitions,omitempty"`
}

func (a *admin) status() status {
	s := status{
		Process: os.Getpid(), Began: a.began, Directory: a.c.dir, RESP: a.resp, Socket: a.c.socket, Connections: a.server.Connections(),
		Processor: processTime().Seconds(), Status: a.node.Status(),
	}
	s.Commands, s.FileBytes = commandsOf(a.server), fileBytes(a.c.dir, "shard-*.fdbm")
	return s
}

// commandsOf returns the number of commands that a server has received.
func commandsOf(s *resp.Server) (n int64) {
	for _, c := range s.Counters().Commands {
		n += c
	}
	return n
}

// fileBytes returns the bytes of the files of a directory, 0 if there is no directory.
func fileBytes(dir, pattern string) (n int64) {
	if dir == "" {
		return 0
	}
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}

// listenAdmin makes the socket, for this user only. This process has the directory's lock, so a socket that exists
// already is left over from an earlier process.
func listenAdmin(dir string) (net.Listener, error) {
	path := filepath.Join(dir, adminSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// askStatus asks the node at the address of --http, or the node that uses the directory.
func askStatus(ctx context.Context, dir, addr string) (s status, err error) {
	network, at := "unix", filepath.Join(dir, adminSocket)
	if addr != "" {
		network, at = "tcp", addr
	}
	h := http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}}}
	defer h.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://flashdbmd/status", nil)
	if err != nil {
		return s, err
	}
	answer, err := h.Do(r)
	if err != nil {
		return s, fmt.Errorf("no node answers at %s; is flashdbmd serve running? %w", at, errors.Unwrap(err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s answers %s: is that the address of --http?", at, answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return s, fmt.Errorf("%s answers what is no status: %w", at, err)
	}
	return s, nil
}

// runStatus is flashdbmd status.
func runStatus(args []string, env func(string) (string, bool), out io.Writer) error {
	var dir, addr string
	var asJSON, watch bool
	f := newFlags("status")
	f.StringVar(&dir, "dir", "", "directory of the node")
	f.StringVar(&addr, "http", "", "its address of --http, instead of the directory")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&watch, "watch", false, "print it again every second until interrupted, also after the node has ended")
	if _, err := parseFlags(f, args, 0, env, out); err != nil {
		return err
	}
	if dir == "" && addr == "" {
		return fmt.Errorf("which node? give --dir or --http: %w", errUsage)
	}
	s, err := askStatus(context.Background(), dir, addr)
	if err != nil {
		return err
	}
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	if err := printStatus(out, &s); err != nil || !watch {
		return err
	}
	for {
		time.Sleep(watchEvery)
		if _, err := fmt.Fprintln(out); err != nil {
			return err
		}
		if s, err = askStatus(context.Background(), dir, addr); err != nil { // the node may be starting again
			fmt.Fprintln(out, err)
			continue
		}
		if err := printStatus(out, &s); err != nil {
			return err
		}
	}
}

// watchEvery is the interval of status --watch. Tests set a shorter one.
var watchEvery = time.Second

func printStatus(out io.Writer, s *status) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "process\t%d, for %v, %.1f s of processor\n", s.Process, time.Since(s.Began).Round(time.Second), s.Processor)
	if s.Directory != "" {
		fmt.Fprintf(t, "directory\t%s, files of %s\n", s.Directory, bytesOf(s.FileBytes))
	}
	fmt.Fprintf(t, "durability\t%s\n", s.Durability)
	fmt.Fprintf(t, "RESP\t%s, %d connections, %d commands\n", s.RESP, s.Connections, s.Commands)
	fmt.Fprintf(t, "library\tshm:%s\n\n", s.Socket)
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Table != "" {
		return printPartitions(out, s)
	}
	fmt.Fprintln(t, "shard\tstate\trecords in memory\tof\tmemory\trequests\tconnections\tto the file\t")
	for _, x := range s.Shards {
		state := "serves"
		switch {
		case x.Failure != "":
			state = "failed: " + x.Failure
		case x.Role == "secondary" && !x.Whole:
			state = "gets a copy"
		case x.Role == "secondary":
			state = "follows"
		case !x.Serving:
			state = "starts"
		case !x.Loaded:
			state = "serves, not all in memory"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%d\t%d\t%s\t\n",
			x.Shard, state, x.Records, bytesOf(x.LiveBytes), bytesOf(x.Capacity+int64(x.TableBytes)), x.Requests, x.Connections, bytesOf(x.Backlog))
	}
	if err := t.Flush(); err != nil || s.Node == "" {
		return err
	}
	return printMembers(out, s)
}

// printPartitions writes what a node knows of the partitions of a RAMP table.
func printPartitions(out io.Writer, s *status) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if s.Node != "" {
		fmt.Fprintf(t, "node %s%s\n", s.Node, map[bool]string{true: ", drained"}[s.Drained])
	}
	fmt.Fprintln(t, "partition\trole\tterm\tin sync\tkeys in memory\tof\tprepared\tcommitted\t")
	for i := range s.Partitions {
		p := &s.Partitions[i]
		role, set := p.Role, strings.Join(p.Set, " ")
		if role == "" {
			role, set = "alone", "-"
		}
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%d\t%s\t%d\t%d\t\n", i, role, p.Term, set, p.Keys, bytesOf(p.Bytes), p.Prepared, p.Commits)
	}
	return t.Flush()
}

// printMembers writes what a node of a cluster knows of the copies of its shards.
func printMembers(out io.Writer, s *status) error {
	t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "\nnode %s%s\n", s.Node, map[bool]string{true: ", drained"}[s.Drained])
	if c := s.Circle; c != nil && c.Moving() {
		fmt.Fprintf(t, "keys move: shards %s share them, and %s shall\n", listOf(c.Shards), listOf(c.Next))
	}
	fmt.Fprintln(t, "shard\tterm\trole\tentry\tcommitted\ttenure\tin sync\tbehind\t")
	for _, x := range s.Shards {
		tenure, behind := "-", []string{}
		if x.Role == "primary" {
			tenure = fmt.Sprintf("%d ms", x.Tenure)
		}
		if x.HandsOver {
			x.Role = "hands over"
		}
		if x.Move != nil {
			behind = append(behind, fmt.Sprintf("moves keys to shard %d: %s, %d brought, %d changed since", x.Move.To, x.Move.Phase, x.Move.Items, x.Move.Changed))
		}
		for _, m := range x.Members {
			what := fmt.Sprintf("%s %d", m.Name, m.Lag)
			switch {
			case m.Copying:
				what = m.Name + " gets a copy"
			case !m.Linked:
				what = m.Name + " is away"
			}
			behind = append(behind, what)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t\n", x.Shard, x.Term, x.Role, x.Seq, x.Committed, tenure, strings.Join(x.Set, " "), strings.Join(behind, ", "))
	}
	return t.Flush()
}

// bytesOf formats a number of bytes for people.
func bytesOf(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// newFlags returns the flags of a command.
func newFlags(command string) *flag.FlagSet {
	f := flag.NewFlagSet("flashdbmd "+command, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parseFlags reads flags, then the environment for flags that are not given, and returns the arguments. There must be
// want arguments; any number if want is negative. Usage errors wrap errUsage.
func parseFlags(f *flag.FlagSet, args []string, want int, env func(string) (string, bool), out io.Writer) ([]string, error) {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(out, "Settings of %s:\n\n", f.Name())
			f.SetOutput(out)
			f.PrintDefaults()
			return nil, err
		}
		return nil, fmt.Errorf("%w: see %s --help (%w)", err, f.Name(), errUsage)
	}
	if want >= 0 && f.NArg() != want {
		return nil, fmt.Errorf("%s takes %d arguments and not %d: %w", f.Name(), want, f.NArg(), errUsage)
	}
	s := &settings{flags: f, origin: map[string]string{}}
	s.fromFlags()
	return f.Args(), s.fromEnvironment(env)
}
