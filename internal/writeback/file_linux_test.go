package writeback

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"flashdbm/logstore/vfs"

	"github.com/stretchr/testify/require"
)

var (
	fileImages  = flag.Int("images.file", 200, "images of a database on FUSE")
	blockImages = flag.Int("images.block", 10, "images of each file system on a loop device on FUSE")
	imageSeed   = flag.Uint64("images.seed", 1, "seed of what is drawn; what the kernel does is not repeated")
)

// lifeImages is how many images are taken of one process.
const lifeImages = 250

// TestFile takes images of a database on a FUSE file system, during the lives of many processes. A life ends with
// Close, with a kill, or with a power failure, after which the file system is mounted again.
func TestFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(*imageSeed, 1))
	taken, lives, cuts := 0, 0, 0
	began := time.Now()
	mem := vfs.NewMem(128 << 20)
	var known past
	for taken < *fileImages {
		s := &sampler{mem: mem, rng: rng, oneIn: 1 + rng.IntN(8), look: lookAt, left: min(lifeImages, *fileImages-taken)}
		dir := t.TempDir()
		unmount := mount(t, mem, dir)
		p := start(t, rng, databaseIn(dir), 0, known)
		s.follow(p)
		s.watch()
		p.wait(s.done)
		p.stop(t, 0)
		mem.OnOp(nil)
		unmount()
		require.NoError(t, s.finish())
		taken, lives = taken+s.taken, lives+1
		if lives%10 == 0 {
			t.Logf("%d images so far", taken)
		}
		known = p.future(t)
		switch rng.IntN(5) {
		case 0: // start with a new database
			mem.Release()
			mem, known = vfs.NewMem(128<<20), past{}
		case 1: // simulate a power failure
			cuts++
			policies := vfs.Policies()
			image := mem.Crash(policies[rng.IntN(len(policies))], rng.Uint64())
			mem.Release()
			mem, known.alive = image, known.safe
		}
	}
	t.Logf("%d images of a database on FUSE, %d processes, %d power cuts, %v", taken, lives, cuts, time.Since(began).Round(time.Second))
}
