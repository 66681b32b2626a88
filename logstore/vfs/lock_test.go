package vfs_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary lock the file that it names, see TestMain.
const childEnv = "VFS_TEST_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		holdLock(name)
	}
	os.Exit(m.Run())
}

// holdLock writes to standard output whether it got the lock, then keeps it until the process is killed.
func holdLock(name string) {
	f, err := vfs.OS().Open(name, os.O_RDWR, 0)
	if err == nil {
		err = f.Lock(true)
	}
	fmt.Println(err)
	if err == nil {
		time.Sleep(time.Hour) // select {} ends a process of nothing else, if it has no C in it
	}
	os.Exit(0)
}

// lockInChild starts a process that locks the file, and returns it with its
// answer.
func lockInChild(t *testing.T, name string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line := bufio.NewScanner(out)
	require.True(t, line.Scan())
	return cmd, line.Text()
}

func TestLockOfAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, vfs.OS(), name)
	child, answer := lockInChild(t, name)
	require.Equal(t, "<nil>", answer)

	err := f.Lock(true)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorIs(t, f.Lock(false), vfs.ErrLocked)
	if runtime.GOOS == "linux" {
		var locked *vfs.LockedError
		require.ErrorAs(t, f.Lock(true), &locked)
		require.Equal(t, child.Process.Pid, locked.PID)
	}

	require.NoError(t, child.Process.Kill())
	child.Wait()
	require.NoError(t, f.Lock(true), "a killed process keeps no lock")

	require.Eventually(t, func() bool {
		_, answer = lockInChild(t, name)
		require.Contains(t, answer, "locked")
		return runtime.GOOS != "linux" || strings.Contains(answer, fmt.Sprint("process ", os.Getpid()))
	}, time.Minute, time.Millisecond)
}

func TestLockGoesByFileNotName(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	f := create(t, vfs.OS(), name)
	require.NoError(t, f.Lock(true))
	for link, how := range map[string]func(old, new string) error{"hard": os.Link, "soft": os.Symlink} {
		other := filepath.Join(dir, link)
		if err := how(name, other); err != nil {
			t.Skip(err)
		}
		err := open(t, vfs.OS(), other, os.O_RDWR).Lock(true)
		require.ErrorIs(t, err, vfs.ErrLocked, link)
		require.ErrorContains(t, err, other)
		_, answer := lockInChild(t, other)
		require.Contains(t, answer, "locked", link)
	}
}

// TestLockOutlivesOtherHandles shows what locks of the older POSIX kind get
// wrong: any close of the file in the process would drop them.
func TestLockOutlivesOtherHandles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, vfs.OS(), name)
	require.NoError(t, f.Lock(true))
	require.NoError(t, open(t, vfs.OS(), name, os.O_RDWR).Close())
	_, answer := lockInChild(t, name)
	require.Contains(t, answer, "locked")
}
