package mvcc

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	tailCommits    = flag.Int("tails.commits", 0, "durable commits of TestCommitTails with housekeeping, and as many without; it is skipped without them")
	tailCommitters = flag.Int("tails.committers", 1, "that commit at once")
)

const (
	tailRecords = 1_000_000
	tailValue   = 192
	tailTurn    = 10_000 // commits with one engine, then with the other, so that other load of the machine hits both
)

// tailed is an engine whose commit times are recorded.
type tailed struct {
	e     *Engine
	took  []time.Duration
	rng   []*rand.Rand
	quit  chan struct{}
	ended sync.WaitGroup
}

// newTailed loads an engine on the real file system and closes it, so that it begins as a database at rest. Without
// housekeeping it has no background work, so no flushes, checkpoints and cleaning; but the file still grows ahead of
// the commits.
func newTailed(t *testing.T, name string, housekeeping bool) *tailed {
	opts := Options{
		Store: logstore.Options{ChunkPages: 1 << 18}, MemoryLimit: 256 << 20, RedoLimit: 32 << 20,
		FlushInterval: 20 * time.Millisecond,
	}
	path := filepath.Join(t.TempDir(), name)
	open := func() *Engine {
		e, err := Open(vfs.OS(), path, opts)
		require.NoError(t, err)
		return e
	}
	e := open()
	for i := 0; i < tailRecords; i += 1000 {
		tx := begin(t, e, TxOptions{})
		for j := range 1000 {
			require.NoError(t, tx.Put(binary.BigEndian.AppendUint64(nil, uint64(i+j)), make([]byte, tailValue)))
		}
		require.NoError(t, tx.Commit())
	}
	require.NoError(t, e.Close())
	if !housekeeping {
		opts.Manual, opts.MemoryLimit = true, 64<<30
	}
	d := &tailed{e: open(), quit: make(chan struct{})}
	for i := range *tailCommitters {
		d.rng = append(d.rng, rand.New(rand.NewPCG(1, uint64(i))))
	}
	if !housekeeping {
		d.ended.Add(1)
		go d.zero(t)
	}
	return d
}

// zero does the one part of background work that makes commits faster: it zeroes segments ahead of the log.
func (d *tailed) zero(t *testing.T) {
	defer d.ended.Done()
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case <-d.quit:
			tick.Stop()
			return
		case <-tick.C:
			if d.e.pressure.zeroDue() {
				if err := d.e.store.ZeroAhead(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// commit overwrites random records, each in its own transaction.
func (d *tailed) commit(t *testing.T, n int) {
	var wg sync.WaitGroup
	took := make([][]time.Duration, len(d.rng))
	for i, rng := range d.rng {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range n / len(d.rng) {
				key, value := binary.BigEndian.AppendUint64(nil, uint64(rng.IntN(tailRecords))), make([]byte, tailValue)
				binary.LittleEndian.PutUint64(value, rng.Uint64())
				start := time.Now()
				tx, err := d.e.Begin(TxOptions{})
				if err == nil {
					if err = tx.Put(key, value); err == nil {
						err = tx.Commit()
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(start))
			}
		}()
	}
	wg.Wait()
	d.took = append(d.took, slices.Concat(took...)...)
}

func (d *tailed) close(t *testing.T) {
	close(d.quit)
	d.ended.Wait()
	require.NoError(t, d.e.Close())
}

// at returns the quantiles of the commit times, given in thousandths.
func (d *tailed) at(thousandths ...int) (q []time.Duration) {
	slices.Sort(d.took)
	for _, n := range thousandths {
		q = append(q, d.took[min(len(d.took)*n/1000, len(d.took)-1)].Round(time.Microsecond))
	}
	return q
}

// TestCommitTails: with cleaning, flushes and checkpoints, the 99.9th percentile of the time of a durable commit is at
// most three times as long as without them.
func TestCommitTails(t *testing.T) {
	if *tailCommits == 0 {
		t.Skip("needs -tails.commits")
	}
	with, without := newTailed(t, "with", true), newTailed(t, "without", false)
	for n := 0; n < *tailCommits; n += tailTurn {
		with.commit(t, min(tailTurn, *tailCommits-n))
		without.commit(t, min(tailTurn, *tailCommits-n))
		if n%(10*tailTurn) == 0 {
			t.Logf("%d: with %v, without %v", n, with.at(500, 990, 999, 1000), without.at(500, 990, 999, 1000))
		}
	}
	s, err := with.e.Stats()
	require.NoError(t, err)
	t.Logf("%d flushes, %d checkpoints, %d pages cleaned of %d written; %d MiB", with.e.flusher.flushes.Load(), s.Checkpoints, s.Cleaned, s.Log.Pages, s.Space.FileBytes>>20)
	a, b := with.at(500, 990, 999, 1000), without.at(500, 990, 999, 1000)
	t.Logf("median, p99, p99.9, longest: with %v, without %v, p99.9 %.2f times", a, b, float64(a[2])/float64(b[2]))
	require.LessOrEqual(t, a[2], 3*b[2])
	with.close(t)
	without.close(t)
}
