package writeback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"flashdbm/dbm"
	"flashdbm/internal/streams"
	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

const (
	diskName  = "disk"
	diskBytes = 96 << 20
)

// TestBelowExt4 and TestBelowXFS take images of a disk. The kernel has a file system on the disk, and the database
// is in it.
func TestBelowExt4(t *testing.T) {
	below(t, fileSystem{make: []string{"mkfs.ext4", "-q", "-F", "-J", "size=4"}, kind: "ext4", options: "loop"})
}

func TestBelowXFS(t *testing.T) {
	// mkfs.xfs creates a file system this small only for XFS's own tests, which it recognizes by their environment
	// variables.
	below(t, fileSystem{
		make: []string{"mkfs.xfs", "-q", "-f", "-l", "size=8m"}, kind: "xfs", options: "loop,nouuid",
		env: []string{"TEST_DIR=/test", "TEST_DEV=/dev/test", "QA_CHECK_FS=1"},
	})
}

// fileSystem describes how to create and mount a file system.
type fileSystem struct {
	make, env     []string
	kind, options string
}

// diskLifeImages is how many images are taken of one disk.
const diskLifeImages = 50

func below(t *testing.T, k fileSystem) {
	if _, err := exec.LookPath(k.make[0]); err != nil {
		t.Skipf("NOT RUN: %v: make fuse-packages installs it", err)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("NOT RUN: no loop devices here: %v", err)
	}
	rng := rand.New(rand.NewPCG(*imageSeed, 2))
	taken, disks, began := 0, 0, time.Now()
	for taken < *blockImages {
		taken += k.life(t, rng, min(diskLifeImages, *blockImages-taken))
		disks++
		t.Logf("%d images so far", taken)
	}
	t.Logf("%d images of a disk with %s on FUSE, %d disks, %v", taken, k.kind, disks, time.Since(began).Round(time.Second))
}

// life creates a file system and runs processes on it until the given number of images have been taken.
func (k fileSystem) life(t *testing.T, rng *rand.Rand, images int) (taken int) {
	mem := vfs.NewMem(diskBytes)
	defer mem.Release()
	dir := t.TempDir()
	unmount := mount(t, mem, dir)
	defer unmount()
	disk := filepath.Join(dir, diskName)
	require.NoError(t, k.format(disk))
	at := t.TempDir()
	if err := k.mount(disk, at); err != nil {
		t.Skipf("NOT RUN: %s cannot be mounted here: %v", k.kind, err)
	}
	defer func() { require.NoError(t, unmountDisk(at)) }()
	require.NoError(t, run("sync", "-f", at))
	require.NoError(t, run("sync", disk))
	require.NoError(t, mem.SyncDir(diskName)) // the name of a disk is always durable

	s := &sampler{mem: mem, rng: rng, oneIn: 1 + rng.IntN(4), left: images, concurrent: true}
	scratch := inMemory(t)
	s.look = func(image *vfs.Mem, least, most streams.Numbers) error { return k.look(image, scratch, least, most) }
	var known past
	for !s.done() {
		p := start(t, rng, databaseIn(at), 500*time.Microsecond, known)
		s.follow(p)
		s.watch()
		p.wait(s.done)
		p.stop(t, 0)
		known = p.future(t)
	}
	mem.OnOp(nil)
	require.NoError(t, s.finish())
	return s.taken
}

func (k fileSystem) format(disk string) error {
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(diskBytes), f.Close()); err != nil {
		return err
	}
	cmd := exec.Command(k.make[0], append(k.make[1:], disk)...)
	cmd.Env = append(os.Environ(), k.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", k.make, err, out)
	}
	return nil
}

func (k fileSystem) mount(disk, dir string) error {
	return run("mount", "-t", k.kind, "-o", k.options, disk, dir)
}

// unmountDisk unmounts a file system. It may be busy for a moment: a process that is being started has all open
// files of its parent until it calls exec.
func unmountDisk(dir string) (err error) {
	for range 100 {
		if err = run("umount", dir); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// inMemory returns a directory for the disks that are checked, in memory if there is such a file system.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "flashdbm-writeback")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, bytes.TrimSpace(out))
	}
	return nil
}

// look mounts the image of a disk, whereby the file system recovers, and then opens, compares and checks the
// database, twice.
func (k fileSystem) look(image *vfs.Mem, scratch string, least, most streams.Numbers) (err error) {
	defer image.Release()
	disk, dir := filepath.Join(scratch, diskName), filepath.Join(scratch, "mounted")
	if err := errors.Join(copyDisk(image, disk), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	if err := k.mount(disk, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmountDisk(dir)) }()
	if _, err := os.Stat(databaseIn(dir)); errors.Is(err, os.ErrNotExist) && least == (streams.Numbers{}) {
		return nil // the database was not even created
	}
	for range 2 {
		if least, err = inspectMounted(databaseIn(dir), least, most); err != nil {
			return err
		}
		most = least
	}
	return nil
}

func inspectMounted(name string, least, most streams.Numbers) (found streams.Numbers, err error) {
	db, err := dbm.Open(name, nil)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.View(func(tx *dbm.Tx) (err error) {
		if found, err = streams.Verify(tx.All(), least, most, false); err == nil {
			err = tx.Err()
		}
		return err
	})
	if err == nil {
		err = db.Check(context.Background())
	}
	return found, err
}

// copyDisk writes the disk of an image to a file that has holes where the disk has zeros.
func copyDisk(image *vfs.Mem, name string) error {
	from, err := image.Open(diskName, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer to.Close()
	size, err := from.Size()
	if err != nil {
		return err
	}
	buf, zeros := make([]byte, 1<<16), make([]byte, 1<<16)
	for off := int64(0); off < size; off += int64(len(buf)) {
		n, err := from.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return err
		}
		if bytes.Equal(buf[:n], zeros[:n]) {
			continue
		}
		if _, err := to.WriteAt(buf[:n], off); err != nil {
			return err
		}
	}
	return to.Truncate(size)
}
