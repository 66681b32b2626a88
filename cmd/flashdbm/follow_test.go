package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
)

func TestFollowOnce(t *testing.T) {
	t.Parallel()
	db, dir := newPath(t), t.TempDir()
	standby := filepath.Join(dir, "standby")
	succeed(t, "put", db, "apple", "red")
	succeed(t, "follow", db, standby, "--once")
	require.Equal(t, "apple\n", succeed(t, "list", standby))
	succeed(t, "put", db, "banana", "yellow")
	succeed(t, "del", db, "apple")
	succeed(t, "follow", db, standby, "--once")
	require.Equal(t, "banana\n", succeed(t, "list", standby))

	other := newPath(t)
	succeed(t, "put", other, "x", "y")
	fail(t, exitError, []string{"of another database"}, "follow", other, standby, "--once")
	fail(t, exitError, []string{"is no standby"}, "follow", db, other, "--once")
	require.NoError(t, os.WriteFile(other+".follow", make([]byte, 10_000), 0o600))
	long := execute(t, "", "follow", db, other, "--once")
	require.Equal(t, exitError, long.code)
	require.Contains(t, long.stderr, other+".follow is damaged")
	require.Less(t, len(long.stderr), 1000)
	require.NoError(t, os.Remove(other+".follow"))
	fail(t, exitUsage, []string{"is the database itself"}, "follow", db, db, "--once") // not "remove it to begin again"
	fail(t, exitError, []string{"is no standby"}, "follow", "--promote", other)
	fail(t, exitUsage, []string{"give DATABASE and STANDBY, or --promote and STANDBY alone; 1 were given"}, "follow", db)
	succeed(t, "follow", "--promote", standby)
	fail(t, exitError, []string{"is no standby"}, "follow", db, standby, "--once")
	succeed(t, "put", standby, "own", "1")
	require.Equal(t, "banana\nown\n", succeed(t, "list", standby))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else is left")
}

// TestFollowKilled kills follow many times, at random moments, while the followed database is written and reopened.
// The standby is consistent each time and complete in the end.
func TestFollowKilled(t *testing.T) {
	t.Parallel()
	path, standby := newPath(t), filepath.Join(t.TempDir(), "standby")
	r := rand.New(rand.NewPCG(1, 1))
	n := 0
	for range 6 {
		db, err := dbm.Open(path, nil)
		require.NoError(t, err)
		cmd := command(t, "follow", path, standby, "--every", "2ms")
		require.NoError(t, cmd.Start())
		for end := time.Now().Add(time.Duration(r.IntN(250)) * time.Millisecond); time.Now().Before(end); n++ {
			require.NoError(t, db.Update(func(tx *dbm.Tx) error {
				if _, err := tx.Increment([]byte("count"), 1); err != nil {
					return err
				}
				return tx.Put(fmt.Appendf(nil, "record %06d", n), make([]byte, n%700))
			}))
		}
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.NoError(t, db.Close())
		if _, err := os.Stat(standby); err == nil {
			require.Contains(t, succeed(t, "check", standby), "no problems")
			requireCounted(t, standby)
		}
	}
	succeed(t, "follow", path, standby, "--once")
	requireCounted(t, standby)
	require.Equal(t, succeed(t, "dump", path), succeed(t, "dump", standby))
}

// requireCounted compares the counter with the number of records: each commit increments the counter and adds a
// record.
func requireCounted(t *testing.T, path string) {
	db, err := dbm.Open(path, &dbm.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *dbm.Tx) error {
		n, err := tx.Len()
		if err != nil || n == 0 {
			return err
		}
		v, err := tx.Get([]byte("count"))
		require.Equal(t, fmt.Sprint(n-1), string(v))
		return err
	}))
}

// TestFollowKilledWriter kills the process that writes while another process follows. The standby continues with
// the next writer.
func TestFollowKilledWriter(t *testing.T) {
	t.Parallel()
	path, standby := newPath(t), filepath.Join(t.TempDir(), "standby")
	succeed(t, "put", path, "first", "1")
	follow := command(t, "follow", path, standby, "--every", "2ms")
	require.NoError(t, follow.Start())
	for turn := range 3 {
		writer := command(t, "load", path, "--json-lines", "--wait", "10s")
		in, err := writer.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, writer.Start())
		for i := range 20_000 {
			if _, err = fmt.Fprintf(in, "{\"key\": \"%d %d\", \"value\": \"%0100d\"}\n", turn, i, i); err != nil {
				break
			}
		}
		require.NoError(t, err)
		require.NoError(t, writer.Process.Kill())
		_ = writer.Wait()
	}
	succeed(t, "put", path, "last", "1")
	require.Eventually(t, func() bool {
		return execute(t, "", "has", standby, "last", "--beside").code == 0
	}, waitForProcess, 50*time.Millisecond)
	require.NoError(t, follow.Process.Signal(os.Interrupt))
	require.NoError(t, follow.Wait())
	require.Equal(t, succeed(t, "dump", path), succeed(t, "dump", standby))
	require.Contains(t, succeed(t, "check", standby), "no problems")
}
