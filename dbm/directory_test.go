package dbm

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

// directoryErrors says which errors of syncing a directory mean that the file system cannot do it.
var directoryErrors = map[error]bool{
	syscall.ENOTSUP: true, syscall.EINVAL: true, syscall.ENOSYS: true, syscall.EACCES: true, syscall.EPERM: true,
	syscall.EIO: false, syscall.ENOSPC: false, syscall.EROFS: false,
}

// TestDirectoryThatCannotBeSynced: if the file system cannot sync directories, a new database is created all the
// same and works, and the log explains what that means. Any other failure to sync the directory is an error as
// usual.
func TestDirectoryThatCannotBeSynced(t *testing.T) {
	for errno, created := range directoryErrors {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			mem := vfs.NewMem(0)
			defer mem.Release()
			mem.OnOp(func(op vfs.Op) error {
				if op.Kind == vfs.OpSyncDir {
					return errno
				}
				return nil
			})
			var log bytes.Buffer
			o := (&load{segmentPages: 64, memoryLimit: 1 << 20, redoLimit: 1 << 20}).options(rand.New(rand.NewPCG(1, 1)))
			o.Events = eventsOf("db", &Options{Events: LogEvents(slog.New(slog.NewTextHandler(&log, nil)))})
			db, err := openEngine(mem, "db", o)
			if !created {
				require.ErrorIs(t, err, errno)
				return
			}
			require.NoError(t, err)
			require.True(t, o.Events.Wait(patience))
			require.Contains(t, log.String(), "cannot be synced")
			require.NoError(t, db.Put([]byte("k"), []byte("v")))
			require.NoError(t, db.Close())
			require.True(t, o.Events.Wait(patience))
			log.Reset()
			db, err = openEngine(mem, "db", o)
			require.NoError(t, err)
			require.True(t, o.Events.Wait(patience))
			require.Empty(t, log.String(), "only a new file")
			v, err := db.Get([]byte("k"))
			require.NoError(t, err)
			require.Equal(t, "v", string(v))
			require.NoError(t, db.Close())
		})
	}
}

// TestSyncDirectory: the same errors are ignored for the new files of Restore and Salvage.
func TestSyncDirectory(t *testing.T) {
	for errno, ignored := range directoryErrors {
		mem := vfs.NewMem(0)
		defer mem.Release()
		mem.OnOp(func(vfs.Op) error { return errno })
		err := syncDirectory(mem, "db")
		if ignored {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errno)
		}
	}
}
