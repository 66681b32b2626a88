package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Opening after a kill: a process updates a million records from 64 goroutines until it kills itself; then the database is opened, and one
// record is read.
func init() {
	addWork(&work{
		Place: 75, Name: "open", Title: "Open after a kill amid durable random updates of 1 M records of 16+100 bytes from 64 goroutines", Disk: true,
		Extra: []string{"flashdbm-redo128m"},
		Rows: []row{
			{Metric: "open_ms", Title: "open and first lookup, ms", Unit: "ms"},
			{Metric: "disk_bytes", Title: "size, MiB", Unit: "MiB", Scale: 1 << 20},
		},
		Run: runOpen,
	})
}

func runOpen(c *Cell) error {
	n := c.scaled(1_000_000)
	if c.Crash {
		d := &drive{shape: smallShape, clients: 64, perTx: 1, perPack: 1, pick: func(r *random) int { return r.below(n) }}
		if err := d.track(n); err != nil {
			return err
		}
		if err := c.Fill(smallShape, n, OpenOptions{Durable: true, Clients: 64}); err != nil {
			return err
		}
		go func() {
			time.Sleep(min(c.limit(), 8*time.Second) * 3 / 4)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
		_, err := d.run(c)
		return fmt.Errorf("came to an end before the kill: %v", err)
	}
	task := c.Task
	task.Crash = true
	spec, err := json.Marshal(task)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-cell", string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		return fmt.Errorf("the process to be killed ended by itself: %v %s", err, out)
	}
	c.set("disk_bytes", float64(diskBytes(c.Dir)))
	start := time.Now()
	if err := c.Open(OpenOptions{Durable: true, Clients: 1}); err != nil {
		return err
	}
	client, err := c.store.Client()
	if err != nil {
		return err
	}
	var ops Ops
	var found Outcome
	ops.Get(smallShape.appendKey(nil, n/2))
	if err := client.Do(&ops, &found); err != nil {
		return err
	}
	c.set("open_ms", float64(time.Since(start).Microseconds())/1000)
	if err := client.Close(); err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	// Which versions were acknowledged died with the process; that each record has one that was written is what can be said.
	return c.Verify(smallShape, n, sampleSize, func(int, uint64) bool { return true })
}
