package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"

	"flashdbm/dbm"

	"github.com/spf13/cobra"
)

// demoWriterName is the hidden command that demo runs as a child and kills.
const demoWriterName = "demo-writer"

// writerStreams is how many goroutines of the child commit concurrently. Each runs a stream of transactions
// numbered from 1, and begins a transaction when the previous one was acknowledged.
const writerStreams = 4

// newDemoWriterCommand returns the child of demo. It commits durable transactions for ever, and acknowledges each
// after its commit has returned, by a line "stream number" on standard output.
func newDemoWriterCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:    demoWriterName + " DATABASE ROUND",
		Short:  "Commit until killed (the child process of demo)",
		Hidden: true,
		Args:   takes(2, 2),
		RunE: p.command(func(cmd *cobra.Command, args []string) error {
			round, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("the round %q is not a number", args[1])
			}
			return p.withDatabase(args[0], dbm.Options{}, func(db *dbm.DB) error {
				return writeUntilKilled(cmd.Context(), db, round, p.stdout)
			})
		}),
	}
}

// writeUntilKilled runs the streams until one fails, or the parent no longer reads the acknowledgements. Each
// acknowledgement is one Write, short enough to be atomic in a pipe.
func writeUntilKilled(ctx context.Context, db *dbm.DB, round int, acknowledgements io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var streams sync.WaitGroup
	for stream := range writerStreams {
		streams.Go(func() {
			for number := 1; ; number++ {
				t := killTransaction{round, stream, number}
				if err := db.UpdateContext(ctx, dbm.TxOptions{}, t.write); err != nil {
					fail(err)
					return
				}
				if _, err := fmt.Fprintf(acknowledgements, "%d %d\n", stream, number); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	streams.Wait()
	return context.Cause(ctx)
}

// killTransaction is one transaction of a stream of a child. Its numbers determine what it writes, so a reader
// can tell whether it is complete:
//
//	kill/<round>/<stream>/<number>/<i>  a value of its own, for each i < parts
//	last/<stream>                       "round number", overwritten by the next
type killTransaction struct {
	round, stream, number int
}

const (
	killPrefix = "kill/"
	lastPrefix = "last/"
)

func (t killTransaction) write(tx *dbm.Tx) error {
	for part := range t.parts() {
		if err := tx.Put(t.key(part), t.value(part)); err != nil {
			return err
		}
	}
	return tx.Put(t.lastKey(), t.lastValue())
}

// parts is the number of records that belong to the transaction alone.
func (t killTransaction) parts() int { return 3 + t.number%6 }

// prefix is the common prefix of the keys of those records.
func (t killTransaction) prefix() []byte {
	return fmt.Appendf(nil, "%s%03d/%d/%08d/", killPrefix, t.round, t.stream, t.number)
}

func (t killTransaction) key(part int) []byte {
	return fmt.Appendf(t.prefix(), "%d", part)
}

// value returns random bytes that only this part of this transaction has. Most are short; one in fifty transactions
// has values that need pages of their own.
func (t killTransaction) value(part int) []byte {
	var seed [32]byte
	for i, n := range []int{t.round, t.stream, t.number, part} {
		binary.LittleEndian.PutUint64(seed[8*i:], uint64(n))
	}
	random := rand.NewChaCha8(seed)
	size := random.Uint64() % 1000
	if t.number%50 == 0 {
		size += 20_000
	}
	value := make([]byte, size)
	// ChaCha8.Read never fails.
	_, _ = random.Read(value)
	return value
}

func (t killTransaction) lastKey() []byte {
	return fmt.Appendf(nil, "%s%d", lastPrefix, t.stream)
}

func (t killTransaction) lastValue() []byte {
	return fmt.Appendf(nil, "%d %d", t.round, t.number)
}

// find reports whether the transaction is there. If only a part of it is, or other values than it wrote, find
// returns an error.
func (t killTransaction) find(tx *dbm.Tx) (found bool, err error) {
	have := 0
	for key, value := range tx.Prefix(t.prefix()) {
		if have >= t.parts() || !bytes.Equal(key, t.key(have)) {
			// A missing part shows as a later part in its place.
			return false, fmt.Errorf("transaction %s: found the key %q, expected part %d of %d", t, key, have, t.parts())
		}
		if !bytes.Equal(value, t.value(have)) {
			return false, fmt.Errorf("transaction %s: the value of %q is not what was written", t, key)
		}
		have++
	}
	if err := tx.Err(); err != nil {
		return false, err
	}
	if have != 0 && have != t.parts() {
		return false, fmt.Errorf("transaction %s: %d of its %d records are there", t, have, t.parts())
	}
	return have > 0, nil
}

// String formats the transaction for messages.
func (t killTransaction) String() string {
	return fmt.Sprintf("%d of stream %d in round %d", t.number, t.stream, t.round)
}
