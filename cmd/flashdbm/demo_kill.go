package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	"flashdbm/dbm"
)

const (
	// The child is killed after this many acknowledgements and then a random
	// time, in which hundreds of writes and syncs begin and end.
	acknowledgementsBeforeKill = 100
	longestKillDelay           = 100 * time.Millisecond
	// childPatience is how long a child may take to get that far.
	childPatience = 30 * time.Second
)

// streamCounts has one number for each stream of a child: the last transaction
// acknowledged, or found.
type streamCounts [writerStreams]int

func (c streamCounts) sum() (n int64) {
	for _, one := range c {
		n += int64(one)
	}
	return n
}

// kill kills a child in the middle of durable commits, again and again. After each kill the database must open, and
// must hold for every stream the transactions from 1 to some number, each complete: all that were acknowledged, and
// at most the one that was under way. What was found once must stay.
func (d *demo) kill(ctx context.Context) error {
	if d.kills == 0 {
		return nil
	}
	row := demoRow{Phase: "kill", uncounted: true}
	started := time.Now()
	var found []streamCounts // of each round
	for round := range d.kills {
		acknowledged, err := d.runChild(ctx, round)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		row.OpenTime, err = d.inspectRound(ctx, &row, &found, acknowledged)
		if err != nil {
			return fmt.Errorf("round %d: after the kill: %w", round, err)
		}
	}
	row.Time = time.Since(started)
	d.rows = append(d.rows, row)
	return nil
}

// inspectRound opens the database after the kill of round len(*found), compares its content with acknowledged, and
// appends the transactions found to *found. It returns the longest open time so far.
func (d *demo) inspectRound(ctx context.Context, row *demoRow, found *[]streamCounts, acknowledged streamCounts) (longest time.Duration, err error) {
	this := demoRow{}
	db, err := d.open(&this)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	round := len(*found)
	var counts streamCounts
	err = db.ViewContext(ctx, func(tx *dbm.Tx) (err error) {
		row.Records, row.Bytes = 0, 0
		for earlier, want := range *found {
			have, err := findRound(ctx, tx, row, earlier)
			if err != nil {
				return err
			}
			if have != want {
				return fmt.Errorf("round %d had the transactions 1 to %v of its streams, now it has %v", earlier, want, have)
			}
		}
		if counts, err = findRound(ctx, tx, row, round); err != nil {
			return err
		}
		return proveRound(tx, round, acknowledged, counts)
	})
	if err != nil {
		return 0, err
	}
	*found = append(*found, counts)
	row.FileSize = db.Stats().FileBytes
	d.say("kill %d: %s transactions acknowledged, all there and whole, and %d of %d under way; opened in %s",
		round+1, formatCount(acknowledged.sum()), counts.sum()-acknowledged.sum(), writerStreams, formatDuration(this.OpenTime))
	return max(row.OpenTime, this.OpenTime), nil
}

// proveRound compares the transactions that the last round left with those that
// were acknowledged.
func proveRound(tx *dbm.Tx, round int, acknowledged, found streamCounts) error {
	for stream := range writerStreams {
		have, told := found[stream], acknowledged[stream]
		if have < told {
			return fmt.Errorf("stream %d: transaction %d was acknowledged, the last one there is %d", stream, told, have)
		}
		if have > told+1 {
			return fmt.Errorf("stream %d: transaction %d is there, but %d was not acknowledged before it began", stream, have, have-1)
		}
		if have == 0 {
			continue
		}
		// The overwritten record must be of the same transaction as the others.
		last := killTransaction{round, stream, have}
		value, err := tx.Get(last.lastKey())
		if err != nil {
			return fmt.Errorf("key %q: %w", last.lastKey(), err)
		}
		if !bytes.Equal(value, last.lastValue()) {
			return fmt.Errorf("key %q is %q, transaction %s wrote %q", last.lastKey(), value, last, last.lastValue())
		}
	}
	return nil
}

// findRound returns the last transaction of each stream of a round. It returns an error unless all transactions
// from 1 on are complete, and nothing else of the round is there.
func findRound(ctx context.Context, tx *dbm.Tx, row *demoRow, round int) (found streamCounts, err error) {
	records := int64(0)
	for stream := range writerStreams {
		for number := 1; ; number++ {
			if err := ctx.Err(); err != nil {
				return found, err
			}
			t := killTransaction{round, stream, number}
			there, err := t.find(tx)
			if err != nil {
				return found, err
			}
			if !there {
				break
			}
			found[stream] = number
			records += int64(t.parts())
		}
	}
	var all int64
	for key, value := range tx.Prefix(fmt.Appendf(nil, "%s%03d/", killPrefix, round)) {
		row.add(key, value)
		all++
	}
	if all != records {
		return found, fmt.Errorf("round %d: %d records belong to transactions 1 to %v of its streams, but %d are there",
			round, records, found, all)
	}
	return found, tx.Err()
}

// runChild starts a child, kills it in the middle of its work and returns the
// last transaction of each stream that it acknowledged.
func (d *demo) runChild(ctx context.Context, round int) (acknowledged streamCounts, err error) {
	self, err := os.Executable()
	if err != nil {
		return acknowledged, err
	}
	ctx, cancel := context.WithTimeout(ctx, childPatience)
	defer cancel()
	child := exec.CommandContext(ctx, self, demoWriterName, d.path, strconv.Itoa(round))
	var complaints bytes.Buffer
	child.Stderr = &complaints
	pipe, err := child.StdoutPipe()
	if err != nil {
		return acknowledged, err
	}
	if err := child.Start(); err != nil {
		return acknowledged, err
	}
	killed, readErr := d.killAmid(child.Process, pipe, &acknowledged)
	waitErr := child.Wait()
	switch {
	case ctx.Err() != nil:
		return acknowledged, fmt.Errorf("the child did not commit %d transactions in %v: %w", acknowledgementsBeforeKill, childPatience, ctx.Err())
	case !killed:
		return acknowledged, fmt.Errorf("the child ended by itself: %w: %s", errors.Join(waitErr, readErr), bytes.TrimSpace(complaints.Bytes()))
	}
	return acknowledged, readErr
}

// killAmid reads acknowledgements to the end of the pipe. After enough of them it kills the process at a random
// time. Acknowledgements that are then in the pipe count: they were written before the process died.
func (d *demo) killAmid(process *os.Process, pipe io.Reader, acknowledged *streamCounts) (killed bool, err error) {
	var killer *time.Timer
	dead := make(chan error, 1) // the result of the kill
	lines := bufio.NewScanner(pipe)
	for n := 1; lines.Scan(); n++ {
		var stream, number int
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &stream, &number); err != nil || stream < 0 || stream >= writerStreams {
			return false, errors.Join(fmt.Errorf("the child wrote %q", lines.Text()), process.Kill())
		}
		acknowledged[stream] = number
		if n == acknowledgementsBeforeKill {
			killer = time.AfterFunc(rand.N(longestKillDelay), func() { dead <- process.Kill() })
		}
	}
	if killer == nil || killer.Stop() {
		return false, lines.Err()
	}
	return true, errors.Join(<-dead, lines.Err())
}
