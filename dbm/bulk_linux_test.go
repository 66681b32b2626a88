package dbm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// A bulk is an atomic transaction much larger than MemoryLimit. A separate process makes it. Another one opens the
// file after that process was killed right after the commit.
type bulk struct {
	name    string
	records int
	key     int // bytes, at least 4
	value   int
	sorted  bool
	limit   int64 // MemoryLimit
	peak    int64 // most bytes beyond the mapping that the process may take
}

// The first one runs with the other tests. -bulk runs the others, with 300 MiB.
var bulks = []bulk{
	{"quick", 500_000, 16, 100, false, 8 << 20, 40 << 20},
	{"100 B", 2_700_000, 16, 100, false, 64 << 20, 128 << 20},
	{"1000 B", 310_000, 16, 1000, false, 64 << 20, 128 << 20},
	{"8 B", 10_000_000, 4, 8, false, 64 << 20, 128 << 20},
	{"ascending", 2_700_000, 16, 100, true, 64 << 20, 128 << 20},
	{"3000 B", 105_000, 16, 3000, false, 64 << 20, 128 << 20},
}

var bulkAll = flag.Bool("bulk", false, "run the large ones of TestBulkMemory")

const bulkEnv = "FLASHDBM_TEST_BULK"

// at computes the key and the value of a record. The key is a number that is a permutation of i, and the value is
// computed from it.
func (b *bulk) at(i uint32, key, value []byte) {
	n := i
	if !b.sorted {
		n = i * 2654435761 // the factor is odd, so all are different
	}
	clear(key)
	binary.BigEndian.PutUint32(key, n)
	for j := range value {
		value[j] = byte(n>>(8*(j%4))) + byte(j)
	}
}

// TestBulkMemory: a transaction several times as large as MemoryLimit takes no more memory beyond the mapping than
// the table allows. The same holds for an open after a kill, either right after the commit or while the transaction
// is applied to the tree. The data are complete.
func TestBulkMemory(t *testing.T) {
	if os.Getenv(bulkEnv) != "" {
		bulkChild(t)
		return
	}
	if testing.Short() || raceEnabled {
		t.Skip("memory is measured, and the race detector has its own; runs without -short")
	}
	for i, b := range bulks {
		if *bulkAll != (i > 0) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			for _, how := range []string{"commit", "cut"} {
				path := filepath.Join(t.TempDir(), "db")
				commit, peak := runBulk(t, i, how, path)
				size, err := os.Stat(path)
				require.NoError(t, err)
				open, peakOpen := runBulk(t, i, "open", path)
				t.Logf("%s %v, peak %d MiB, file %d MiB; open after the kill, and reading all, %v, peak %d MiB", how,
					commit.Round(time.Millisecond), peak>>20, size.Size()>>20, open.Round(time.Millisecond), peakOpen>>20)
				require.Less(t, peak, b.peak)
				require.Less(t, peakOpen, b.peak)
			}
		})
	}
}

// cutFS kills the process while a bulk is applied to the tree, after a given number of writes since its group was
// synced.
type cutFS struct {
	vfs.FS
	armed  atomic.Bool // Commit has been called
	syncs  atomic.Int64
	writes atomic.Int64
}

const (
	cutSyncs  = 2 // the sync of the layers and that of the group
	cutWrites = 5
)

func (c *cutFS) Open(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := c.FS.Open(name, flag, perm)
	return &cutFile{f, c}, err
}

type cutFile struct {
	vfs.File
	fs *cutFS
}

func (f *cutFile) Datasync() error {
	err := f.File.Datasync()
	if f.fs.armed.Load() && commits() {
		f.fs.syncs.Add(1)
	}
	return err
}

// commits reports whether the caller is called by Commit. Background work syncs too: the space by which the file grows.
func commits() bool {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "dbm.(*Tx).Commit") {
			return true
		}
		if !more {
			return false
		}
	}
}

func (f *cutFile) WriteAt(p []byte, off int64) (int, error) {
	if f.fs.syncs.Load() >= cutSyncs && f.fs.writes.Add(1) > cutWrites {
		fmt.Println("bulk cut done")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	}
	return f.File.WriteAt(p, off)
}

// runBulk runs a child and returns how long it took and the most anonymous memory that it used.
func runBulk(t *testing.T, which int, what, path string) (took time.Duration, peak int64) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestBulkMemory$")
	cmd.Env = append(os.Environ(), "GOGC=100", fmt.Sprintf("%s=%d %s %s", bulkEnv, which, what, path)) // make test has fewer collections than other programs
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for deadline := time.After(5 * time.Minute); ; {
		select {
		case err := <-done:
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
				require.NoError(t, err, "%s", out.String())
			}
			require.Contains(t, out.String(), "bulk "+what+" done")
			return time.Since(begin), peak
		case <-deadline:
			cmd.Process.Kill()
			t.Fatal("takes too long")
		case <-time.After(2 * time.Millisecond):
			peak = max(peak, anonymousBytes(cmd.Process.Pid))
		}
	}
}

func anonymousBytes(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}

// bulkChild is what the child does: commit and be killed, or open the database and read every record.
func bulkChild(t *testing.T) {
	f := strings.SplitN(os.Getenv(bulkEnv), " ", 3)
	i, err := strconv.Atoi(f[0])
	require.NoError(t, err)
	b, path := &bulks[i], f[2]
	fs := &cutFS{FS: vfs.OS()}
	db, err := open(fs, path, &Options{MemoryLimit: b.limit})
	require.NoError(t, err)
	key, value := make([]byte, b.key), make([]byte, b.value)
	if f[1] != "open" {
		tx, err := db.Begin(TxOptions{})
		require.NoError(t, err)
		for i := range uint32(b.records) {
			b.at(i, key, value)
			require.NoError(t, tx.Put(key, value))
		}
		fs.armed.Store(f[1] == "cut")
		require.NoError(t, tx.Commit())
		require.Equal(t, "commit", f[1], "was not cut")
		fmt.Println("bulk commit done")
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	}
	fmt.Println(db.Stats())
	n, err := db.Len()
	require.NoError(t, err)
	require.EqualValues(t, b.records, n)
	require.NoError(t, db.View(func(tx *Tx) error {
		for i := range uint32(b.records) {
			b.at(i, key, value)
			got, err := tx.Get(key)
			if err != nil || !bytes.Equal(got, value) {
				return fmt.Errorf("record %d: %v, %d bytes", i, err, len(got))
			}
		}
		return nil
	}))
	require.NoError(t, db.Check(context.Background()))
	require.NoError(t, db.Close())
	fmt.Println("bulk open done")
}
