package dbm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"flashdbm/dbm"
	"flashdbm/internal/streams"

	"github.com/stretchr/testify/require"
)

var (
	killRounds = flag.Int("kill.rounds", 10, "how often the kill test kills a process")
	killSeed   = flag.Uint64("kill.seed", 0, "seed of what the kill test draws; 0 = another one each time")
)

// killChild holds the arguments of the process that is to be killed.
const killChild = "FLASHDBM_KILL_CHILD"

// TestKill kills a process that uses a database, many times and at any moment: while it opens, recovers, commits
// from many goroutines, flushes, checkpoints or closes. After each death, the database contains what package
// streams requires. After some deaths it is not checked before the next process opens it.
//
// The random numbers of a seed are the same each time, but not what the process is doing when it is killed.
func TestKill(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	k := &killer{rng: rand.New(rand.NewPCG(seed, 7)), path: filepath.Join(t.TempDir(), "db"), large: true}
	for round := range *killRounds {
		if err := k.round(t.TempDir()); err != nil {
			t.Fatalf("round %d of seed %d (%+v): %v", round, seed, k.load, err)
		}
	}
	require.NoError(t, k.inspect())
	t.Log(k)
}

// TestKillChild is the process that TestKill kills.
func TestKillChild(t *testing.T) {
	args, ok := os.LookupEnv(killChild)
	if !ok {
		t.Skip("is the process that TestKill starts; by itself it has nothing to do")
	}
	path, record, l := "", "", streams.Load{}
	var durability uint8
	_, err := fmt.Sscanf(args, "%q %q %d %d %d %d %t", &path, &record, &durability, &l.Options.MemoryLimit, &l.Options.RedoLimit, &l.CloseIn, &l.Large)
	require.NoError(t, err)
	l.Options.Durability = dbm.Durability(durability)
	r, err := streams.OpenRecord(record)
	require.NoError(t, err)
	if err := streams.Run(path, r, l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// killer runs and kills processes one after another, on one database.
type killer struct {
	rng   *rand.Rand
	path  string
	large bool
	load  streams.Load // of the current round

	// The newest transactions promised, and begun, so far.
	least, most streams.Numbers

	acknowledged uint64
	opens        []time.Duration
	kills        map[streams.Stage]int
	inspections  int
}

func (k *killer) String() string {
	if len(k.opens) == 0 {
		return fmt.Sprintf("kills by stage %v", k.kills)
	}
	slices.Sort(k.opens)
	size := int64(0)
	if s, err := os.Stat(k.path); err == nil {
		size = s.Size()
	}
	return fmt.Sprintf("killed while starting %d, opening %d, running %d, closing %d times, too late %d; %d transactions acknowledged; opens %v, half below %v, longest %v; file of %d MiB",
		k.kills[streams.Starting], k.kills[streams.Opening], k.kills[streams.Running], k.kills[streams.Closing], k.kills[streams.Closed],
		k.acknowledged, k.opens[0].Round(time.Microsecond), k.opens[len(k.opens)/2].Round(time.Microsecond), k.opens[len(k.opens)-1].Round(time.Microsecond), size>>20)
}

// round runs one process, kills it and checks what is left.
func (k *killer) round(dir string) error {
	k.load = streams.Load{Large: k.large, Options: dbm.Options{Durability: dbm.Durability(k.rng.IntN(3))}}
	if k.rng.IntN(2) == 0 {
		k.load.Options.MemoryLimit = 1 << 20
	}
	if k.rng.IntN(2) == 0 {
		k.load.Options.RedoLimit = 1 << 20
	}
	stage, delay := streams.Running, time.Duration(k.rng.Int64N(int64(80*time.Millisecond)))
	switch k.rng.IntN(4) {
	case 0:
		stage, delay = streams.Opening, time.Duration(k.rng.Int64N(int64(4*time.Millisecond)))
	case 1:
		k.load.CloseIn = time.Duration(1 + k.rng.Int64N(int64(30*time.Millisecond)))
		stage, delay = streams.Closing, time.Duration(k.rng.Int64N(int64(4*time.Millisecond)))
	}
	record, err := streams.OpenRecord(filepath.Join(dir, "record"))
	if err != nil {
		return err
	}
	defer record.Close()
	if err := k.runAndKill(filepath.Join(dir, "record"), record, stage, delay); err != nil {
		return err
	}
	if err := k.account(record); err != nil {
		return err
	}
	if k.rng.IntN(4) == 0 {
		return nil // left for the next process
	}
	return k.inspect()
}

// runAndKill starts a process and kills it some time after it has reached a stage.
func (k *killer) runAndKill(path string, record *streams.Record, stage streams.Stage, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestKillChild$")
	o := &k.load.Options
	child.Env = append(os.Environ(), killChild+"="+fmt.Sprintf("%q %q %d %d %d %d %t", k.path, path, o.Durability, o.MemoryLimit, o.RedoLimit, k.load.CloseIn, k.load.Large))
	var complaints strings.Builder
	child.Stdout, child.Stderr = &complaints, &complaints
	if err := child.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for record.Stage() < stage {
		select {
		case err := <-ended:
			if record.Stage() >= stage { // between two checks of the stage
				ended <- err
				continue
			}
			return fmt.Errorf("the process ended by itself: %w: %s", err, complaints.String())
		case <-time.After(50 * time.Microsecond):
		}
	}
	select {
	case err := <-ended: // it has closed the database early
		if err != nil || record.Stage() != streams.Closed {
			return fmt.Errorf("the process ended by itself: %w: %s", err, complaints.String())
		}
	case <-time.After(delay):
		if err := child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-ended
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the process was not where it should be within minutes: %s", complaints.String())
	}
	if s := complaints.String(); s != "" {
		return fmt.Errorf("the process said: %s", s)
	}
	return nil
}

// account takes over what the process has recorded, beginning with what it found.
func (k *killer) account(record *streams.Record) error {
	if k.kills == nil {
		k.kills = map[streams.Stage]int{}
	}
	k.kills[record.Stage()]++
	if record.Stage() < streams.Running {
		return nil
	}
	k.opens = append(k.opens, time.Duration(record.OpenTime()))
	promised := record.Durable()
	if k.load.Options.Durability != dbm.Buffered {
		promised = higher(promised, record.Returned())
	}
	found, returned := record.Found(), record.Returned()
	for s := range streams.Count {
		if found[s] < k.least[s] || found[s] > k.most[s] {
			return fmt.Errorf("stream %d: the process found transaction %d as the last one, %d was promised and %d begun", s, found[s], k.least[s], k.most[s])
		}
		k.acknowledged += returned[s] - found[s]
	}
	k.least, k.most = higher(k.least, promised), record.Begun()
	return nil
}

func higher(a, b streams.Numbers) streams.Numbers {
	for s := range a {
		a[s] = max(a[s], b[s])
	}
	return a
}

// inspect opens the database and compares it with what must be there. What it finds must stay from then on.
func (k *killer) inspect() error {
	if _, err := os.Stat(k.path); errors.Is(err, os.ErrNotExist) && k.most == (streams.Numbers{}) {
		return nil
	}
	k.inspections++
	if k.rng.IntN(3) == 0 {
		if err := k.look(&dbm.Options{ReadOnly: true}); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
	}
	return k.look(&dbm.Options{})
}

func (k *killer) look(o *dbm.Options) (err error) {
	began := time.Now()
	db, err := dbm.Open(k.path, o)
	if err != nil {
		return err
	}
	k.opens = append(k.opens, time.Since(began))
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *dbm.Tx) error {
		found, err := streams.Verify(tx.All(), k.least, k.most, k.large)
		if err == nil {
			err = tx.Err()
		}
		k.least, k.most = found, found
		return err
	})
	if err != nil {
		return err
	}
	return db.Check(context.Background())
}
