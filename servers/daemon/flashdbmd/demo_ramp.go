package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"flashdbm/servers/ramp"
)

const demoRampHelp = `flashdbmd demo ramp shows what atomic transactions of several keys are for, and proves them:

  three partitions, each a thread with a file of its own. Writers keep friendships in
  both directions, and persons with an index of the city they live in: several keys,
  mostly of several partitions, in each transaction. Readers read all keys of a
  friendship, or of a person, and look whether what they got fits together.

  compare   by the client library, by RESP (MSET and MGET), and with the control
            switched off: transactions seen in part ("fractured") must be 0 but there
  orphans   clients are killed when all partitions have prepared their transaction
            and none was told to commit: the partitions finish it by themselves
  kill      the server is killed (-9) under load and started again: every
            transaction that was acknowledged is there, whole

A wrong result ends it with exit code 3. It takes less than a minute, in
a new directory that it removes.

`

// orphanVariable makes a process a client that kills itself between the phases of a transaction.
const orphanVariable = "FLASHDBMD_DEMO_ORPHAN"

// Sizes of the demo.
const (
	rampPartitions = 3
	rampPeople     = 40
	rampCities     = 4
	rampOrphans    = 10
	rampThreads    = 2 // number of writers, and of readers
	// rampPatience is how long the row without concurrency control is measured again while it has found no mixed
	// read.
	rampPatience = time.Minute
)

// demoRamp is flashdbmd demo ramp.
type demoRamp struct {
	out    io.Writer
	dir    string
	each   time.Duration
	server *exec.Cmd
	resp   string
	acked  sync.Map // by name of a subject: the number of the last transaction that was acknowledged
}

func runDemoRamp(args []string, out io.Writer) (err error) {
	d := &demoRamp{out: out}
	f := newFlags("demo ramp")
	f.DurationVar(&d.each, "each", 4*time.Second, "how long each row of the table, and the writers before the kill, run")
	if _, err := parseFlags(f, args, 0, noVariables, io.Discard); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			io.WriteString(out, demoRampHelp)
			f.SetOutput(out)
			f.PrintDefaults()
		}
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if d.dir, err = os.MkdirTemp("", "flashdbmd-demo-"); err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, d.stop(os.Interrupt)); ctx.Err() != nil {
			err = errInterrupted // and the context has killed the server, by which a step may have failed
		}
		err = errors.Join(err, os.RemoveAll(d.dir))
	}()
	began := time.Now()
	for _, step := range []func(context.Context) error{d.start, d.compare, d.orphans, d.kill} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	fmt.Fprintf(out, "\nall of it took %v\n", time.Since(began).Round(time.Second))
	return nil
}

// start starts a server on the directory.
func (d *demoRamp) start(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	d.server = exec.CommandContext(ctx, exe, "serve", "--table", "ramp", "--dir", d.dir, "--resp", "127.0.0.1:0", "--shards", fmt.Sprint(rampPartitions), "--durability", "sync")
	messages, err := d.server.StderrPipe()
	if err != nil {
		return err
	}
	if err := d.server.Start(); err != nil {
		return err
	}
	lines, said := bufio.NewScanner(messages), ""
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
	return nil
}

func (d *demoRamp) stop(how os.Signal) error {
	if d.server == nil {
		return nil
	}
	s := d.server
	d.server = nil
	if err := s.Process.Signal(how); err != nil {
		return err
	}
	if err := s.Wait(); how != os.Kill {
		return err
	}
	return nil
}

func (d *demoRamp) dial(o *ramp.Options) (*ramp.Client, error) {
	return ramp.Dial(context.Background(), []string{"shm:" + filepath.Join(d.dir, "node.sock")}, o)
}

// A rampRow has the figures of one way.
type rampRow struct {
	puts, gets, fractured, lost atomic.Int64
	failed                      atomic.Pointer[error]
}

// measure has writers and readers work for a time; each uses a way of its own.
func (d *demoRamp) measure(prefix string, ways []way, each time.Duration) *rampRow {
	r := &rampRow{}
	end := time.Now().Add(each)
	var wait sync.WaitGroup
	subjects := func(rnd *rand.Rand, own int) subject {
		i := rnd.IntN(rampPeople/rampThreads)*rampThreads + own // every subject has a single writer
		if rnd.IntN(2) == 0 {
			return person(prefix, i)
		}
		return friendship(prefix, i, rampPeople+i)
	}
	for i, w := range ways {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		wait.Go(func() {
			for time.Now().Before(end) && r.failed.Load() == nil {
				var err error
				if i < rampThreads {
					s := subjects(rnd, i)
					last, _ := d.acked.LoadOrStore(s.name, 0)
					if err = w.put(s.keys, s.values(last.(int)+1)); err == nil {
						d.acked.Store(s.name, last.(int)+1)
						r.puts.Add(1)
					}
				} else {
					s := subjects(rnd, rnd.IntN(rampThreads))
					least, _ := d.acked.LoadOrStore(s.name, 0)
					var values [][]byte
					if values, err = w.get(s.keys); err == nil {
						n, whole := s.number(values)
						r.gets.Add(1)
						if !whole {
							r.fractured.Add(1)
						} else if n < least.(int) {
							r.lost.Add(1)
						}
					}
				}
				if err != nil {
					r.failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wait.Wait()
	return r
}

// compare measures every way and prints the table.
func (d *demoRamp) compare(context.Context) error {
	fmt.Fprintf(d.out, "%d writers and %d readers for %v each, %d persons, %d partitions with a sync for each transaction, on %d processors:\n\n",
		rampThreads, rampThreads, d.each, rampPeople, rampPartitions, runtime.NumCPU())
	t := tabwriter.NewWriter(d.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "way\twritten a second\tread a second\tkeys Read one-sided\trepaired\tfractured\tlost\t")
	library, err := d.dial(nil)
	if err != nil {
		return err
	}
	defer library.Close()
	off, err := d.dial(&ramp.Options{Algorithm: ramp.Uncontrolled})
	if err != nil {
		return err
	}
	defer off.Close()
	for _, x := range []struct {
		name, prefix string
		c            *ramp.Client
		open         func() (way, error)
	}{
		{"library", "a:", library, func() (way, error) { return libraryWay{library}, nil }},
		{"RESP", "b:", nil, d.openRESP},
		{"control switched off", "c:", off, func() (way, error) { return libraryWay{off}, nil }},
	} {
		var ways []way
		for range 2 * rampThreads {
			w, err := x.open()
			if err != nil {
				return err
			}
			ways = append(ways, w)
		}
		r := d.measure(x.prefix, ways, d.each)
		for until := time.Now().Add(rampPatience); x.c == off && r.fractured.Load() == 0 && r.failed.Load() == nil && time.Now().Before(until); { // on a slow machine the few readers seldom meet a writer
			r = d.measure(x.prefix, ways, d.each)
		}
		if err := r.failed.Load(); err != nil {
			return *err
		}
		reads, repaired := "-", "-"
		if x.c != nil {
			s := x.c.Stats()
			reads, repaired = fmt.Sprint(s.OneSided), fmt.Sprint(s.Repaired)
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%s\t%s\t%d\t%d\t\n", x.name, float64(r.puts.Load())/d.each.Seconds(), float64(r.gets.Load())/d.each.Seconds(), reads, repaired, r.fractured.Load(), r.lost.Load())
		switch {
		case r.gets.Load() == 0 || r.puts.Load() == 0:
			return fmt.Errorf("%s: nothing was read, or nothing written", x.name)
		case x.c != off && r.fractured.Load()+r.lost.Load() > 0:
			t.Flush()
			return fmt.Errorf("%s: transactions were seen in part, or lost", x.name)
		case x.c == off && r.fractured.Load() == 0:
			t.Flush()
			return fmt.Errorf("%s: no transaction was seen in part, so the rows above prove nothing", x.name)
		}
	}
	return t.Flush()
}

func (d *demoRamp) openRESP() (way, error) {
	c, err := net.Dial("tcp", d.resp)
	if err != nil {
		return nil, err
	}
	return &respWay{c: c, r: bufio.NewReader(c)}, nil
}

// orphans has clients die between the phases, and waits until the partitions have finished the transactions of these
// clients.
func (d *demoRamp) orphans(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for i := range rampOrphans {
		c := exec.CommandContext(ctx, exe, "demo", "ramp")
		c.Env = append(os.Environ(), orphanVariable+"="+d.dir, fmt.Sprintf("FLASHDBMD_DEMO_NUMBER=%d", i))
		out, err := c.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("prepared")) {
			return fmt.Errorf("a client that was to die between the phases did not: %v: %s", err, out)
		}
	}
	began := time.Now()
	for left := -1; left != 0; time.Sleep(20 * time.Millisecond) {
		s, err := askRampStatus(d.dir)
		if err != nil {
			return err
		}
		left = 0
		for _, p := range s.Partitions {
			left += p.Prepared
		}
		if time.Since(began) > 30*time.Second {
			return fmt.Errorf("%d versions stay prepared", left)
		}
	}
	took := time.Since(began)
	c, err := d.dial(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range rampOrphans {
		s := orphan(i)
		values, err := libraryWay{c}.get(s.keys)
		if err != nil {
			return err
		}
		if n, whole := s.number(values); !whole || n != 1 {
			return fmt.Errorf("transaction %d of a client that died is there in part: %q", i, values)
		}
	}
	fmt.Fprintf(d.out, "\n%d clients killed between PREPARE and COMMIT: %v behind the last one nothing was prepared any more, and all %d transactions are there, whole\n",
		rampOrphans, took.Round(10*time.Millisecond), rampOrphans)
	return nil
}

// runOrphan is a client that kills itself between the phases of a transaction.
func runOrphan(dir string) error {
	i, err := strconv.Atoi(os.Getenv("FLASHDBMD_DEMO_NUMBER"))
	if err != nil {
		return err
	}
	c, err := ramp.Dial(context.Background(), []string{"shm:" + filepath.Join(dir, "node.sock")}, &ramp.Options{BeforeCommit: func(ramp.Timestamp) {
		fmt.Println("prepared")
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Kill()
		}
		time.Sleep(time.Minute)
		panic(err)
	}})
	if err != nil {
		return err
	}
	s := orphan(i)
	if err := (libraryWay{c}).put(s.keys, s.values(1)); err != nil {
		return err
	}
	return errors.New("all keys belong to one partition")
}

func askRampStatus(dir string) (s rampStatus, err error) {
	h := http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, adminSocket))
	}}}
	defer h.CloseIdleConnections()
	answer, err := h.Get("http://flashdbmd/status")
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	return s, json.NewDecoder(answer.Body).Decode(&s)
}

// kill kills the server under load, starts it again, and checks every subject.
func (d *demoRamp) kill(ctx context.Context) error {
	library, err := d.dial(nil)
	if err != nil {
		return err
	}
	var ways []way
	for range 2 * rampThreads {
		ways = append(ways, libraryWay{library})
	}
	server := d.server.Process
	time.AfterFunc(d.each/2, func() { server.Kill() })
	r := d.measure("a:", ways, d.each)
	library.Close()
	if err := d.stop(os.Kill); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if r.failed.Load() == nil {
		return errors.New("the server was killed, and nobody noticed")
	}
	if r.fractured.Load()+r.lost.Load() > 0 {
		return errors.New("transactions were seen in part, or lost")
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	c, err := d.dial(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	subjects, later := 0, 0
	for i := range rampPeople {
		for _, s := range []subject{person("a:", i), friendship("a:", i, rampPeople+i), person("b:", i), friendship("b:", i, rampPeople+i)} {
			values, err := libraryWay{c}.get(s.keys)
			if err != nil {
				return err
			}
			least, _ := d.acked.LoadOrStore(s.name, 0)
			n, whole := s.number(values)
			switch {
			case !whole:
				return fmt.Errorf("%s is there in part: %q", s.name, values)
			case n < least.(int):
				return fmt.Errorf("%s: transaction %d was acknowledged, the newest there is %d", s.name, least, n)
			case n > least.(int):
				later++
			}
			subjects++
		}
	}
	fmt.Fprintf(d.out, "\nserver killed (-9) after %d more transactions and started again: %d friendships and persons are whole, with what was acknowledged last; %d with what was under way\n",
		r.puts.Load(), subjects, later)
	return nil
}
