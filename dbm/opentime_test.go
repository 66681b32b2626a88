//go:build unix

package dbm

import (
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How long does it take to open a database of 1 GB that was killed while 33 goroutines wrote? `make opentime`
// creates it once, lets a child write until it kills itself, and opens what is left several times.
//
//	-opentime.dir  where to create the database (it takes up to 5 GB); without it, nothing is measured
//	-opentime.runs number of kills
//	-opentime.look only open what is there: this often read-only, and once for writing
var (
	openTimeDir  = flag.String("opentime.dir", "", "directory for the database of TestOpenTime, which is skipped without it")
	openTimeRuns = flag.Int("opentime.runs", 4, "kills per durability of TestOpenTime")
	openTimeLook = flag.Int("opentime.look", 0, "read-only opens of TestOpenTime, and one for writing, and nothing else")
	openTimeKB   = flag.Bool("opentime.kb", false, "1 M records of 1 KB instead of 8 M of 116 bytes")
)

const (
	openTimeWriters = 33
	openTimeChild   = "FLASHDBM_OPENTIME" // durability and number of commits of the child
)

// openTimeLoad describes the database: records with keys of 16 bytes.
func openTimeLoad() (records, valueBytes int) {
	if *openTimeKB {
		return 1_000_000, 1_000
	}
	return 8_000_000, 100
}

func openTimeKey(n uint64) []byte {
	return binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%08d", n%100_000_000), n*0x9E3779B97F4A7C15)
}

func TestOpenTime(t *testing.T) {
	if *openTimeDir == "" {
		t.Skip("needs -opentime.dir")
	}
	records, valueBytes := openTimeLoad()
	path := filepath.Join(*openTimeDir, fmt.Sprintf("opentime-%d.fdbm", valueBytes))
	if os.Getenv(openTimeChild) != "" {
		openTimeWrite(t, path)
		return
	}
	for range *openTimeLook {
		openTimeOnce(t, path, "read-only", func(o *Options) { o.ReadOnly = true })
	}
	if *openTimeLook > 0 {
		openTimeOnce(t, path, "writing")
		return
	}
	if _, err := os.Stat(path); err != nil {
		require.NoError(t, openTimeBuild(path, records, valueBytes))
	}
	warm(t, path)
	openTimeOnce(t, path, "closed cleanly")
	for _, d := range []Durability{Durable, WriteThrough} {
		for run := range *openTimeRuns {
			openTimeKill(t, path, d, run)
			warm(t, path)
			name := []string{"durable", "write-through"}[d] + " writers killed"
			openTimeOnce(t, path, name+", read-only", func(o *Options) { o.ReadOnly = true })
			openTimeOnce(t, path, name)
		}
	}
}

// openTimeBuild loads the records in random key order, which is the order of the hashes in the keys.
func openTimeBuild(path string, records, valueBytes int) error {
	db, err := Open(path+".new", &Options{Durability: Buffered})
	if err != nil {
		return err
	}
	value := make([]byte, valueBytes)
	for n := 0; n < records; {
		err := db.Update(func(tx *Tx) error {
			for end := min(n+1000, records); n < end; n++ {
				if err := tx.Put(openTimeKey(uint64(n)), value); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := db.Close(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// openTimeKill runs this test in a child, which writes random records and kills itself while it does.
func openTimeKill(t *testing.T, path string, d Durability, run int) {
	child := exec.Command(os.Args[0], "-test.run=^TestOpenTime$", "-opentime.dir="+*openTimeDir, fmt.Sprintf("-opentime.kb=%v", *openTimeKB))
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d", openTimeChild, d, run))
	out, err := child.CombinedOutput()
	require.Error(t, err, "the child was to be killed: %s", out)
	require.Equal(t, syscall.SIGKILL, child.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s", out)
}

// openTimeWrite commits random records one at a time from many goroutines, until the log to redo is nearly as long
// as it can get, for at most 20 seconds, and then kills the process.
func openTimeWrite(t *testing.T, path string) {
	var d, run int
	_, err := fmt.Sscan(os.Getenv(openTimeChild), &d, &run)
	require.NoError(t, err)
	db, err := Open(path, &Options{Durability: Durability(d)})
	require.NoError(t, err)
	records, valueBytes := openTimeLoad()
	for w := range openTimeWriters {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(w), uint64(run)))
			value := make([]byte, valueBytes)
			for {
				binary.LittleEndian.PutUint64(value, rng.Uint64())
				if err := db.Put(openTimeKey(rng.Uint64N(uint64(records))), value); err != nil {
					panic(err)
				}
			}
		}()
	}
	least := time.Duration(2+run) * time.Second
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		s, err := db.engine.Stats()
		require.NoError(t, err)
		if time.Since(begin) > least && s.RedoBytes >= defaultRedoLimit*15/16 { // a flush is about to begin or running
			break
		}
	}
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// warm reads the file, so that it is in the page cache.
func warm(t *testing.T, path string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	require.NoError(t, err)
}

// openTimeOnce opens the database, prints how long that and the first calls take, and closes it.
func openTimeOnce(t *testing.T, path, name string, change ...func(*Options)) {
	o := &Options{}
	for _, c := range change {
		c(o)
	}
	begin, before := time.Now(), usedTime()
	db, err := Open(path, o)
	require.NoError(t, err)
	opened, busy := time.Since(begin), usedTime()-before
	took := func(fn func() error) time.Duration {
		begin := time.Now()
		require.NoError(t, fn())
		return time.Since(begin)
	}
	get := took(func() error {
		_, err := db.Get(openTimeKey(7))
		return err
	})
	cursor := took(func() error {
		return db.View(func(tx *Tx) error {
			tx.Cursor().First()
			return tx.Err()
		})
	})
	var commit time.Duration
	if !o.ReadOnly {
		commit = took(func() error { return db.Put(openTimeKey(7), make([]byte, 10)) })
	}
	s, err := db.engine.Stats()
	require.NoError(t, err)
	r := s.Recovery
	ms := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) }
	fmt.Printf("%s: open %s ms (%s of processors; %+v); %d records of %d groups redone; file %d MiB, live %d MiB; then Get %s, cursor %s, commit %s ms\n",
		name, ms(opened), ms(busy), r.Steps, r.Records, r.Groups, s.Space.FileBytes>>20, s.Space.LiveBytes>>20, ms(get), ms(cursor), ms(commit))
	require.NoError(t, db.Close())
}
