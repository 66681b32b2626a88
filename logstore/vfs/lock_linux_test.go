package vfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestListsLock(t *testing.T) {
	const head = "pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t1234\n"
	tests := []struct {
		lines string
		want  bool
	}{
		{"", false},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 9223372036854771712 9223372036854771712\n", true},
		{"lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:1234 9223372036854771712 9223372036854771712\n", true},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF\n", true},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 9\n", false},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 9223372036854771713 EOF\n", false},
		{"lock:\t1: POSIX  ADVISORY  WRITE 77 fe:00:1234 9223372036854771712 9223372036854771712\n", false},
		{"lock:\t1: FLOCK  ADVISORY  WRITE 77 fe:00:1234 0 EOF\n", false},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 x y\n", false},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0\n", false},
		{"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1 0 9\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1 10 EOF\n", true},
	}
	for _, test := range tests {
		require.Equal(t, test.want, listsLock(head+test.lines), test.lines)
	}
}

func FuzzListsLock(f *testing.F) {
	f.Add("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF\n")
	f.Fuzz(func(t *testing.T, text string) { listsLock(text) })
}

// TestLockMeetsOlderKind shows that a program which locks the whole file the
// POSIX way is excluded, and is named.
func TestLockMeetsOlderKind(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f, err := OS().Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer f.Close()
	other, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer other.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	require.NoError(t, unix.FcntlFlock(other.Fd(), unix.F_SETLK, &whole))
	err = f.Lock(true)
	var locked *LockedError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, os.Getpid(), locked.PID)

	part := unix.Flock_t{Type: unix.F_UNLCK, Start: 1 << 40}
	require.NoError(t, unix.FcntlFlock(other.Fd(), unix.F_SETLK, &part))
	require.NoError(t, f.Lock(true), "a lock of small offsets does not meet ours")
}

// TestHolderIsKept: not every attempt to get a lock searches all processes.
func TestHolderIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	holder, err := OS().Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer holder.Close()
	require.NoError(t, holder.Lock(true))
	f, err := OS().Open(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	pid := func() int {
		var locked *LockedError
		require.ErrorAs(t, f.Lock(true), &locked)
		return locked.PID
	}
	require.Equal(t, os.Getpid(), pid())
	kept := &f.(*osFile).holder
	kept.pid, kept.at = -1, time.Now().Add(time.Minute)
	require.Equal(t, -1, pid())
	kept.at = time.Now().Add(-holderKept)
	require.Equal(t, os.Getpid(), pid())
}
