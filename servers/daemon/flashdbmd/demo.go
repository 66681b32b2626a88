package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"

	"flashdbm/servers/hydra"
)

const demoHelp = `flashdbmd demo does the main job of the server and proves the result:

  load      a million records of 100 bytes into two shards, half of them by RESP,
            half by the client library; each write is acknowledged by a sync
  compare   GETs of 5,000 keys by one-sided Reads, by messages and by RESP: how
            many, and what each costs the server's process
  kill      writers overwrite records by both ways; the server is killed (-9)
  verify    the server is started again, and every record must have what was
            acknowledged last, or what was under way

The server is a process of its own, and this one is all of its clients; both share
the processors of this machine. A wrong result ends it with exit code 3.
It takes less than 3 minutes and 1 GB of disk, in a new directory that it removes.

`

// demo is flashdbmd demo.
type demo struct {
	out     io.Writer
	dir     string // of the database
	records int
	each    time.Duration // duration of a row of the comparison, and of the overwrites before the kill
	server  *exec.Cmd
	resp    string
	client  *hydra.Client
	writes  []span // by number of the record
}

// loadTime bounds the load. A slow machine loads fewer records, and the demo says so.
const loadTime = 70 * time.Second

// shardsOfDemo is the number of shards, and so of threads, of the server.
const shardsOfDemo = 2

func runDemo(args []string, out io.Writer) (err error) {
	d := &demo{out: out}
	keep := false
	parent := ""
	f := newFlags("demo")
	f.StringVar(&parent, "dir", "", "make the working directory in this one; empty: where the system has temporary files")
	f.IntVar(&d.records, "records", 1_000_000, "how many records")
	f.DurationVar(&d.each, "each", 4*time.Second, "how long each row of the table, and the writers before the kill, run")
	f.BoolVar(&keep, "keep", false, "keep the database and say where it is")
	if _, err := parseFlags(f, args, 0, noVariables, io.Discard); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			io.WriteString(out, demoHelp)
			f.SetOutput(out)
			f.PrintDefaults()
		}
		return err
	}
	if d.records < 1000 || d.each <= 0 {
		return fmt.Errorf("--records: want 1,000 at least, and --each more than nothing: %w", errUsage)
	}
	ctx, stop := untilSignal()
	defer stop()
	if d.dir, err = os.MkdirTemp(parent, "flashdbmd-demo-"); err != nil {
		return err
	}
	defer func() {
		if keep {
			fmt.Fprintf(out, "the database is in %s\n", d.dir)
		} else if rerr := os.RemoveAll(d.dir); err == nil {
			err = rerr
		}
	}()
	defer func() {
		if err = errors.Join(err, d.stop(os.Interrupt)); ctx.Err() != nil {
			err = errInterrupted // and the context has killed the server, by which a step may have failed
		}
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{d.start, d.load, d.compare, d.kill, d.verify} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	fmt.Fprintf(out, "\nall of it took %v\n", time.Since(began).Round(time.Second))
	return nil
}

// noVariables hides the environment: variables that are meant for a server must not choose where a demo works.
func noVariables(string) (string, bool) { return "", false }

// start starts a server on the directory and connects to it.
func (d *demo) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	d.server = exec.CommandContext(ctx, exe, "serve", "--dir", d.dir, "--resp", "127.0.0.1:0", "--shards", fmt.Sprint(shardsOfDemo), "--durability", "sync")
	messages, err := d.server.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.server.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(messages)
	said := ""
	for d.resp = ""; d.resp == "" && lines.Scan(); {
		said += lines.Text() + "\n"
		if m := regexp.MustCompile(`RESP at (\S+),`).FindStringSubmatch(lines.Text()); m != nil {
			d.resp = m[1]
		}
	}
	if d.resp == "" {
		return fmt.Errorf("the server does not start: %s", said)
	}
	go io.Copy(io.Discard, messages)
	d.client, err = d.dial(ctx, nil)
	return err
}

func (d *demo) dial(ctx context.Context, o *hydra.Options) (*hydra.Client, error) {
	return hydra.Dial(ctx, []string{"shm:" + filepath.Join(d.dir, "node.sock")}, o)
}

// stop ends the server if there is one.
func (d *demo) stop(how os.Signal) error {
	if d.client != nil {
		d.client.Close()
		d.client = nil
	}
	if d.server == nil {
		return nil
	}
	s := d.server
	d.server = nil
	if err := s.Process.Signal(how); err != nil {
		return err
	}
	err := s.Wait()
	if how == os.Kill {
		return nil
	}
	return err
}

// A row has the figures of one way to read.
type row struct {
	name      string
	n         int64
	took      time.Duration
	processor float64 // processor time of the server, in seconds
	oneSided  uint64
	failed    error
}

// hotRecords is how many records the comparison reads. A lease lasts 1 s, and longer the more often its key is read,
// so one-sided Reads suit keys that are read every second. With more keys than GETs in a second, most GETs would be
// messages.
const hotRecords = 5000

// compare reads the same keys in several ways.
func (d *demo) compare(ctx context.Context) error {
	messages, err := d.dial(ctx, &hydra.Options{Pointers: -1})
	if err != nil {
		return err
	}
	defer messages.Close()
	keys := min(d.records, hotRecords)
	fmt.Fprintf(d.out, "\nGETs of %d random keys by 2 goroutines for %v each; the server and these clients are two processes on %d processors:\n\n", keys, d.each, runtime.NumCPU())
	t := tabwriter.NewWriter(d.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\tGETs a second\tserver's processor\tfor a GET\tof them Reads\t")
	for _, way := range []struct {
		name   string
		client *hydra.Client
	}{{"one-sided Reads", d.client}, {"messages", messages}, {"RESP", nil}} {
		d.measure(ctx, way.name, keys, way.client, d.each/2) // the first GETs bring the pointers and leases
		r := d.measure(ctx, way.name, keys, way.client, d.each)
		if r.failed != nil {
			return r.failed
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.1f %% of one\t%.3f µs\t%.1f %%\t\n", r.name, float64(r.n)/r.took.Seconds(), 100*r.processor/r.took.Seconds(),
			1e6*r.processor/float64(r.n), 100*float64(r.oneSided)/float64(r.n))
	}
	return t.Flush()
}

// kill overwrites records in both ways, notes which overwrites are acknowledged, and kills the server.
func (d *demo) kill(ctx context.Context) error {
	acknowledged, err := d.overwrite(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\n%d overwrites were acknowledged within %v; killed (-9) in the middle of others\n", acknowledged, d.each)
	return nil
}

// verify starts the server again and compares every record.
func (d *demo) verify(ctx context.Context) error {
	began := time.Now()
	if err := d.start(ctx); err != nil {
		return err
	}
	if _, err := d.client.Get(ctx, keyOf(0)); err != nil {
		return fmt.Errorf("the first record after the kill: %w", err)
	}
	answered := time.Since(began)
	began = time.Now()
	later, err := d.compareAll(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "started again, the first record after %v; all %d records compared in %v: each has what was acknowledged last, %d what was under way\n",
		answered.Round(10*time.Millisecond), d.records, time.Since(began).Round(100*time.Millisecond), later)
	return nil
}
