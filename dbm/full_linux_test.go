package dbm

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
	"flashdbm/mvcc"
)

var fullDevice = flag.Bool("full.device", false, "fill file systems on loop devices in TestFullMount: root, and mkfs.ext4 or mkfs.xfs")

// mountSmall creates a file system of the given size and mounts it until the test ends.
func mountSmall(t *testing.T, kind string, bytes int64) (dir string) {
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	file, err := os.Create(image)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(bytes))
	require.NoError(t, file.Close())
	for _, args := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT RUN: %v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// TestFullMount is TestFullDevice on real file systems of the kernel.
func TestFullMount(t *testing.T) {
	if !*fullDevice {
		t.Skip("mounts file systems on loop devices, as root: make full runs it")
	}
	for _, kind := range []struct {
		name  string
		bytes int64
	}{{"ext4", 64 << 20}, {"xfs", 320 << 20}} {
		t.Run(kind.name, func(t *testing.T) {
			dir := mountSmall(t, kind.name, kind.bytes)
			f := newFullFile(t, 0, 256, 1000, mvcc.WriteThrough)
			f.close()
			path, others := filepath.Join(dir, "db"), filepath.Join(dir, "others")
			o := (&Options{Durability: WriteThrough}).engine() // with background work
			db, err := openEngine(vfs.OS(), path, o)
			require.NoError(t, err)
			f.db = db

			first := f.fill()
			live := f.live()
			f.check()
			f.deleteSome(first/2, nil)
			half := f.fill()
			f.check()
			f.deleteSome(half, nil)
			all := f.fill()
			f.check()
			t.Logf("full with %d records, %d of %d bytes; half deleted, %d; all deleted, %d", first, live, kind.bytes, half, all)
			require.Greater(t, half, first*8/10)
			require.Greater(t, all, first*8/10)

			f.deleteSome(all*9/10, nil)
			require.NoError(t, db.Compact(t.Context(), nil))
			small := db.Stats().FileBytes
			taken, err := os.Create(others)
			require.NoError(t, err)
			n := int64(0)
			for block := make([]byte, 1<<20); err == nil; n += 1 << 20 {
				_, err = taken.Write(block)
			}
			require.NoError(t, taken.Close())
			f.fill()
			kill := func() {
				f.db.engine.Fail(errors.New("killed"))
				require.Error(t, f.db.Close())
				f.db, err = openEngine(vfs.OS(), path, o)
				require.NoError(t, err)
			}
			kill()
			f.deleteSome(len(f.keys)/2, kill)
			f.check()
			few := f.fill()
			require.NoError(t, os.Remove(others))
			again := f.fill()
			f.check()
			t.Logf("compacted to %d bytes; others take %d: %d records; and give them back: %d", small, n, few, again)
			require.Less(t, few, first*7/10)
			require.Greater(t, again, first*8/10)
			require.NoError(t, f.db.Close())
			f.db, err = openEngine(vfs.OS(), path, o)
			require.NoError(t, err)
			f.check()
		})
	}
}
