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

// childVariable has the arguments of the process that uses the database.
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
	l.Options.Events = func(e dbm.Event) { // whatever is told fails the test, but for syncs that are slow: that is the machine
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

// A process uses a database for a while; what it does is recorded.
type process struct {
	load   streams.Load
	record *streams.Record
	cmd    *exec.Cmd
	ended  chan error
	said   strings.Builder

	past past
}

// past is what is known of the database before a process: the newest transactions begun, and those that a power cut, or the end of the
// process before, must not have taken.
type past struct{ safe, alive, begun streams.Numbers }

// start starts a process on the database at path.
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

// promised returns the newest transactions that a power cut from now on must not take.
func (p *process) promised() streams.Numbers { return higher(p.past.safe, p.record.Durable()) }

// begun returns the newest transactions that can have left anything by now.
func (p *process) begun() streams.Numbers { return higher(p.past.begun, p.record.Begun()) }

// wait returns when enough is true, or the process has ended, or it has had the time that a life should take.
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

// stop waits until the process has ended, after so long by being killed. It fails the test if the process has failed.
func (p *process) stop(t *testing.T, after time.Duration) {
	t.Helper()
	select {
	case err := <-p.ended:
		require.NoError(t, err, p.said.String())
		require.Equal(t, streams.Closed, p.record.Stage())
	case <-time.After(after):
		if err := p.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) { // it may just have ended by itself
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

// future returns what is known of the database after the process has ended, having made sure that it found what had to be there.
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
