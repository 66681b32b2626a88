package writeback

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"flashdbm/dbm"
	"flashdbm/internal/streams"

	"github.com/stretchr/testify/require"
)

// childVariable holds the arguments of the process that uses the database.
const childVariable = "FLASHDBM_WRITEBACK_CHILD"

func TestMain(m *testing.M) {
	args, ok := os.LookupEnv(childVariable)
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func child(args string) error {
	var path, record string
	var durability uint8
	var l streams.Load
	if _, err := fmt.Sscanf(args, "%q %q %d %d %d %d", &path, &record, &durability, &l.Options.MemoryLimit, &l.CloseIn, &l.Pause); err != nil {
		return err
	}
	l.Options.Durability, l.Options.RedoLimit = dbm.Durability(durability), 1<<20
	tell := dbm.LogEvents(slog.Default())
	l.Options.Events = func(e dbm.Event) { // every event fails the test, except slow syncs, which are due to the machine
		if e.Kind != dbm.EventSlowSync {
			tell(e)
		}
	}
	r, err := streams.OpenRecord(record)
	if err != nil {
		return err
	}
	return streams.Run(path, r, l)
}

// A process uses a database for a while, and records what it does.
type process struct {
	load   streams.Load
	record *streams.Record
	cmd    *exec.Cmd
	ended  chan error
	said   strings.Builder

	past past
}

// past is what is known of the database before a process starts. begun are the newest transactions that have begun.
// A power failure must not lose those up to safe, nor the end of the process before those up to alive.
type past struct{ safe, alive, begun streams.Numbers }

// start starts a process that uses the database at path.
func start(t *testing.T, rng *rand.Rand, path string, pause time.Duration, past past) *process {
	t.Helper()
	p := &process{past: past, ended: make(chan error, 1)}
	p.load = streams.Load{Pause: pause, Options: dbm.Options{Durability: dbm.Durability(rng.IntN(3))}}
	if rng.IntN(2) == 0 {
		p.load.Options.MemoryLimit = 1 << 20
	}
	if rng.IntN(3) == 0 {
		p.load.CloseIn = time.Duration(rng.Int64N(int64(2 * time.Second)))
	}
	name := filepath.Join(t.TempDir(), "record")
	var err error
	p.record, err = streams.OpenRecord(name)
	require.NoError(t, err)
	t.Cleanup(func() { p.record.Close() })
	p.cmd = exec.Command(os.Args[0])
	o := &p.load.Options
	p.cmd.Env = append(os.Environ(), childVariable+"="+fmt.Sprintf("%q %q %d %d %d %d", path, name, o.Durability, o.MemoryLimit, p.load.CloseIn, p.load.Pause))
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

// promised returns the newest transactions that a power failure from now on must not lose.
func (p *process) promised() streams.Numbers { return higher(p.past.safe, p.record.Durable()) }

// begun returns the newest transactions of which anything may be in the file by now.
func (p *process) begun() streams.Numbers { return higher(p.past.begun, p.record.Begun()) }

// wait returns when enough returns true, when the process has ended, or when the time of a life is over.
func (p *process) wait(enough func() bool) {
	for deadline := time.Now().Add(lifeTime); !enough() && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		select {
		case err := <-p.ended:
			p.ended <- err
			return
		default:
		}
	}
}

const lifeTime = 20 * time.Second

// stop waits until the process has ended, and kills it after the given time. It fails the test if the process has
// failed.
func (p *process) stop(t *testing.T, after time.Duration) {
	t.Helper()
	select {
	case err := <-p.ended:
		require.NoError(t, err, p.said.String())
		require.Equal(t, streams.Closed, p.record.Stage())
	case <-time.After(after):
		if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) { // it may just have ended itself
			require.NoError(t, err)
		}
		select {
		case <-p.ended:
		case <-time.After(time.Minute):
			t.Fatal("a killed process does not end")
		}
	}
	require.Empty(t, p.said.String())
}

// future returns what is known of the database after the process has ended. It first checks that the process found
// what had to be there.
func (p *process) future(t *testing.T) past {
	t.Helper()
	f := past{safe: p.promised(), begun: p.begun()}
	f.alive = higher(p.past.alive, f.safe)
	if p.record.Stage() < streams.Running {
		return f
	}
	found := p.record.Found()
	for s := range found {
		require.GreaterOrEqual(t, found[s], p.past.alive[s], "stream %d: found after the process before", s)
		require.LessOrEqual(t, found[s], p.past.begun[s], "stream %d: found after the process before", s)
	}
	f.begun = p.record.Begun()
	if p.load.Options.Durability != dbm.Buffered {
		f.alive = higher(f.alive, p.record.Returned())
	} else {
		f.alive = f.safe
	}
	return f
}

func higher(a, b streams.Numbers) streams.Numbers {
	for s := range a {
		a[s] = max(a[s], b[s])
	}
	return a
}
