//go:build unix

package dbm

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

var (
	spaceLive  = flag.String("space.live", "10,50,200,2000", "live sizes of TestSpaceCells at full size, in MB")
	spaceCells = flag.String("space.cells", "", "part of the names of the cells of TestSpaceCells to run; all if empty")
	spaceLimit = flag.Int64("space.limit", 0, "MemoryLimit of TestSpaceCells in MiB, with a RedoLimit of a quarter of that: smaller ones make a small file like a large one")
	spaceTurns = flag.Float64("space.turns", 6, "times the live bytes that each cell of TestSpaceCells writes behind the load")
)

// These are limits for the size of a file after each checkpoint. While it is written at full speed: spaceFactor
// times the live bytes, plus spaceExtra. After idleAfter without writes: idleFactor times the live bytes, plus
// idleExtra, which files of any size may have. Live bytes are those of the keys and values of existing records.
const (
	spaceFactor = 2
	spaceExtra  = 32 << 20
	idleFactor  = 1.5
	idleExtra   = 2 << 20
	idleAfter   = 10 * time.Second
)

// A spaceCell is a database of a given size, with what is written to it after the load.
type spaceCell struct {
	live    int64  // bytes of keys and values after the load
	record  int    // bytes of a record, 8 of which are the key
	dist    string // of the keys that are written: "uniform" or "zipfian"
	mix     string // "overwrite"; "delete": what is there is deleted, what is not is put; "load": in random order, and no more
	writers int    // a single one writes 100 records per transaction, several write one record each
	most    int64  // bytes written after the load; 0: determined by the flags
}

func (c spaceCell) String() string {
	return fmt.Sprintf("%dMB-%dB-%s-%s-%d", c.live/1e6, c.record, c.mix, c.dist, c.writers)
}

// A cellRun is the result of one cell.
type cellRun struct {
	t       *testing.T
	cell    spaceCell
	r       *spaceRun
	present []atomic.Bool
	live    atomic.Int64
	phase   atomic.Pointer[string]

	mu    sync.Mutex
	worst map[string]cellLook // by phase
}

// A cellLook describes a file after a checkpoint.
type cellLook struct {
	over    float64 // share of its limit that the file takes
	blocks  int64
	live    int64
	redo    int64
	dirty   int64
	account logstore.Account
}

func (l cellLook) String() string {
	return fmt.Sprintf("%3.0f%% of the bar: %d MB for %d MB; redo %d, dirty %d, %s", l.over*100, l.blocks/1e6, l.live/1e6, l.redo>>20, l.dirty>>20, inMiB(l.account))
}

// watch examines the file after each checkpoint until stop is closed.
func (c *cellRun) watch(stop chan struct{}) {
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	var told time.Time
	for at := uint64(0); ; {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		n := c.r.db.engine.Checkpoints()
		if n == at {
			continue
		}
		at = n
		l := cellLook{live: c.live.Load(), blocks: c.r.blocks()}
		l.over = float64(l.blocks) / float64(spaceFactor*l.live+spaceExtra)
		phase := *c.phase.Load()
		if *spaceTrace && time.Since(told) > time.Second/2 {
			told = time.Now()
			s, _ := c.r.db.engine.Stats()
			fmt.Printf("%v %s checkpoint %d: %3.0f, %d MB for %d; pages %d MiB, cleaned %d, redo %d, dirty %d, %s\n", told.Format("05.0"), phase, n, l.over*100, l.blocks/1e6, l.live/1e6,
				s.Log.Pages>>8, s.Cleaned>>8, s.RedoBytes>>20, s.DirtyPages>>8, inMiB(c.r.db.engine.Account()))
		}
		c.mu.Lock()
		if l.over > c.worst[phase].over {
			s, _ := c.r.db.engine.Stats()
			l.redo, l.dirty, l.account = s.RedoBytes, s.DirtyPages*logstore.PageSize, c.r.db.engine.Account()
			c.worst[phase] = l
		}
		c.mu.Unlock()
	}
}

// write makes the writers write the given number of records. Each writes the records whose number modulo the number
// of writers is its own.
func (c *cellRun) write(records int, next func(rng *rand.Rand, zipf *rand.Zipf, i int) (key int, remove bool)) {
	var all sync.WaitGroup
	for g := range c.cell.writers {
		all.Go(func() {
			n := len(c.present) / c.cell.writers
			rng := rand.New(rand.NewPCG(*spaceSeed, uint64(g)))
			zipf := rand.NewZipf(rng, 1.1, 1, uint64(n-1))
			value := make([]byte, c.cell.record-8)
			per := 1
			if c.cell.writers == 1 {
				per = 100
			}
			for i := 0; i < records/c.cell.writers; i += per {
				err := c.r.db.Update(func(tx *Tx) error {
					for j := range per {
						key, remove := next(rng, zipf, i+j)
						key = key*c.cell.writers + g
						if remove {
							if c.present[key].Swap(false) {
								c.live.Add(-int64(c.cell.record))
							}
							if err := tx.Delete(spaceKey(key)); err != nil {
								return err
							}
							continue
						}
						binary.LittleEndian.PutUint64(value, uint64(i))
						if err := tx.Put(spaceKey(key), value); err != nil {
							return err
						}
						if !c.present[key].Swap(true) {
							c.live.Add(int64(c.cell.record))
						}
					}
					return nil
				})
				if !assert.NoError(c.t, err) {
					return
				}
			}
		})
	}
	all.Wait()
}

// spread permutes the numbers below n, if n is not a multiple of the factor.
func spread(i, n int) int { return int(uint64(i) * 0x9E3779B1 % uint64(n)) }

// run loads, writes and waits. at examines the size of the file.
func (cell spaceCell) run(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := openUnsynced(path, &Options{MemoryLimit: *spaceLimit << 20, RedoLimit: *spaceLimit << 18})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	n := int(cell.live) / cell.record / cell.writers * cell.writers
	c := &cellRun{t: t, cell: cell, r: &spaceRun{t: t, path: path, db: db}, present: make([]atomic.Bool, n), worst: map[string]cellLook{}}
	stop, watched := make(chan struct{}), make(chan struct{})
	enter := func(phase string) { c.phase.Store(&phase) }
	enter("load")
	go func() {
		defer close(watched)
		c.watch(stop)
	}()
	each, began := n/cell.writers, time.Now()
	c.write(n, func(_ *rand.Rand, _ *rand.Zipf, i int) (int, bool) {
		if i %= each; cell.mix == "load" {
			return spread(i, each), false
		}
		return i, false
	})
	before, _ := db.engine.Stats()
	loaded := fmt.Sprintf("loaded in %.1f s, %.2f bytes for one, %d MiB live", time.Since(began).Seconds(), float64(before.Log.Pages)*logstore.PageSize/float64(cell.live), db.engine.Account().Live>>8)
	rate := 0.0
	began = time.Now()
	if cell.mix != "load" {
		enter(cell.mix)
		records := int(*spaceTurns*float64(cell.live)) / cell.record
		if cell.most > 0 {
			records = int(cell.most) / cell.record
		}
		c.write(records, func(rng *rand.Rand, zipf *rand.Zipf, i int) (key int, remove bool) {
			if cell.dist == "zipfian" {
				key = spread(int(zipf.Uint64()), each)
			} else {
				key = rng.IntN(each)
			}
			return key, cell.mix == "delete" && c.present[key*cell.writers].Load()
		})
		rate = float64(records) / time.Since(began).Seconds() / 1000
	}
	after, _ := db.engine.Stats()
	enter("idle")
	began = time.Now()
	for c.r.blocks() > int64(idleFactor*float64(c.live.Load()))+idleExtra && time.Since(began) < idleAfter {
		time.Sleep(100 * time.Millisecond)
	}
	waited := time.Since(began)
	close(stop)
	<-watched
	idle := float64(c.r.blocks()) / (idleFactor*float64(c.live.Load()) + idleExtra)
	line := ""
	for _, phase := range slices.Compact([]string{"load", cell.mix, "idle"}) {
		if l, ok := c.worst[phase]; ok {
			line += fmt.Sprintf("\n   %s %v", phase, l)
		}
	}
	written := 0.0
	if rate > 0 {
		written = float64(after.Log.Pages-before.Log.Pages) * logstore.PageSize / (*spaceTurns * float64(cell.live))
	}
	t.Logf("%v: %s; %.0f thousand records a second, %.2f bytes for one%s\n   rests at %3.0f%% of the bar after %.1f s: %d MB for %d MB, %s", cell, loaded, rate, written, line, idle*100, waited.Seconds(),
		c.r.blocks()/1e6, c.live.Load()/1e6, inMiB(db.engine.Account()))
	for phase, l := range c.worst {
		assert.LessOrEqual(t, l.blocks, spaceFactor*l.live+spaceExtra, phase)
	}
	assert.LessOrEqual(t, idle, 1.0, "idle")
	require.NoError(t, db.Check(t.Context()))
}

// TestSpaceCells: a file that is written at full speed takes at most twice its live bytes plus 32 MiB.
func TestSpaceCells(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var cells []spaceCell
	if *spaceFull {
		for _, mb := range strings.Split(*spaceLive, ",") {
			n, err := strconv.Atoi(mb)
			require.NoError(t, err)
			for _, record := range []int{100, 1000} {
				cells = append(cells, spaceCell{live: int64(n) * 1e6, record: record, dist: "uniform", mix: "load", writers: 1})
				for _, mix := range []string{"overwrite", "delete"} {
					for _, dist := range []string{"uniform", "zipfian"} {
						cells = append(cells, spaceCell{live: int64(n) * 1e6, record: record, dist: dist, mix: mix, writers: 1})
					}
				}
				cells = append(cells, spaceCell{live: int64(n) * 1e6, record: record, dist: "uniform", mix: "overwrite", writers: 4})
			}
		}
	} else {
		cells = []spaceCell{
			{live: 10e6, record: 1000, dist: "uniform", mix: "overwrite", writers: 1, most: 60e6},
			{live: 50e6, record: 1000, dist: "uniform", mix: "overwrite", writers: 1, most: 100e6},
		}
	}
	for _, c := range cells {
		if name := c.String(); strings.Contains(name, *spaceCells) {
			t.Run(name, c.run)
		}
	}
}

// TestSpaceRests: a file to which nobody writes any more shrinks to one and a half times its live bytes, as the log
// of the last writes becomes superfluous and half-dead segments are cleaned. After that, nothing is written. Of
// files that differ by some records, some end with few free segments and some with many.
func TestSpaceRests(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	for i := range 6 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			spaceRests(t, 10_000+i*100)
		})
	}
}

func spaceRests(t *testing.T, n int) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	r := &spaceRun{t: t, path: path, db: db}
	const size = 1000
	r.fill(n, size)
	rng := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, size-8)
	r.update(2*n, 100, func(tx *Tx, _ int) error { return tx.Put(spaceKey(rng.IntN(n)), value) })
	most := int64(idleFactor*float64(n)*size) + idleExtra
	require.Eventually(t, func() bool { return r.blocks() <= most }, patience, 50*time.Millisecond)
	time.Sleep(4 * time.Second) // cleaning that gains nothing comes to its end
	before := db.Stats().PagesWritten
	time.Sleep(3 * time.Second)
	require.Equal(t, before, db.Stats().PagesWritten, "a file at rest is not written")
	require.LessOrEqual(t, r.blocks(), most)
	require.NoError(t, db.Check(t.Context()))
}
