package dbm

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

var (
	hostileFiles = flag.Int("hostile.files", 0, "hostile files in all, instead of 1,000")
	hostileFrom  = flag.Uint64("hostile.from", 1, "first seed of hostile files")
	hostileAt    = flag.String("hostile.at", "", "file that has the seed under way, to know it after a panic of a goroutine in the background")
)

// A hostile is a database whose structure is changed and whose checksums are then corrected, as by an attacker who
// knows the format.
type hostile struct {
	*sealer
	rng   *rand.Rand
	what  string
	did   []string                // kinds of changes made
	kinds map[logstore.Kind][]int // pages of each kind
	inner map[int][]int           // tree pages of each level
}

// Offsets in a tree page and in an extents' list, see docs/format.md.
const (
	nodeLevel, nodeFlags, nodeCount, nodeEntries = 40, 41, 42, 48
	leafHeads, leafSlots                         = 4, 6
	extentBytes                                  = 16
	refSize                                      = 20
)

func (h *hostile) survey() {
	h.kinds, h.inner = map[logstore.Kind][]int{}, map[int][]int{}
	for _, a := range h.pages {
		k := logstore.Kind(h.page(a)[4])
		h.kinds[k] = append(h.kinds[k], a)
		if k == logstore.KindTree {
			level := int(h.page(a)[nodeLevel])
			h.inner[level] = append(h.inner[level], a)
		}
	}
}

func (h *hostile) note(format string, args ...any) { h.what += fmt.Sprintf(format, args...) + "; " }

func one[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// kinds are the possible changes, each drawn as often as its share says.
var kinds = []struct {
	name  string
	share int
	do    func(*hostile)
}{
	{"graph", 5, (*hostile).graph},
	{"leaves", 2, (*hostile).leaves},
	{"values", 2, (*hostile).values},
	{"logged", 5, (*hostile).logged},
	{"extents", 2, (*hostile).extents},
	{"stream", 3, (*hostile).stream},
	{"supers", 2, (*hostile).supers},
	{"headers", 2, (*hostile).headers},
	{"bytes", 2, func(h *hostile) { h.note("%s", h.mutate(h.rng)) }},
	{"repeated", 3, (*hostile).repeated},
	{"table", 2, (*hostile).table},
	{"space", 3, (*hostile).space},
	{"counts", 2, (*hostile).counts},
	{"levels", 1, (*hostile).levels},
	{"loop", 1, (*hostile).loop},
}

// spoil makes one to three changes.
func (h *hostile) spoil() {
	h.survey()
	for range 1 + h.rng.IntN(3) {
		total := 0
		for _, k := range kinds {
			total += k.share
		}
		n := h.rng.IntN(total)
		for _, k := range kinds {
			if n -= k.share; n < 0 {
				h.did = append(h.did, k.name)
				k.do(h)
				break
			}
		}
	}
	h.seal()
}

// longer is the length of a hole that a file gets at its end.
func longer(rng *rand.Rand, segment int) int64 {
	switch rng.IntN(32) {
	case 0:
		return int64(1+rng.IntN(100)) * int64(segment)
	case 1:
		return 100<<20 + int64(rng.IntN(100<<20))
	}
	return 0
}

const (
	filesOfBase = 200 // hostile files made from one base
	realEvery   = 100 // one in realEvery files is a real one, mapped by the system and with background work in the background
)

// A campaign tests hostile files.
type campaign struct {
	base     *specimen
	plain    *sealer // of the base
	file     []byte  // the hostile one
	baseSeed uint64
	dir      string
	at       *os.File
	did      map[string]int
	real     int
}

// make draws the hostile file of a seed.
func (c *campaign) make(seed uint64) (*hostile, error) {
	if from := seed / filesOfBase; c.base == nil || c.baseSeed != from {
		s, err := drawBase(from)
		if err != nil {
			return nil, err
		}
		c.base, c.baseSeed, c.plain = s, from, newSealer(s.file, int(s.load.segmentPages))
		again := newSealer(s.file, int(s.load.segmentPages))
		if again.seal(); !bytes.Equal(again.file, s.file) { // otherwise files would be refused because of their checksums
			return nil, fmt.Errorf("%s: sealing a file that is right changes it", s.name)
		}
	}
	sealer := *c.plain
	c.file = append(c.file[:0], c.plain.file...)
	sealer.file = c.file
	h := &hostile{sealer: &sealer, rng: rand.New(rand.NewPCG(seed, 1))}
	h.spoil()
	return h, nil
}

// try tests the file of a seed in all modes.
func (c *campaign) try(seed uint64) error {
	h, err := c.make(seed)
	if err != nil {
		return err
	}
	for _, k := range h.did {
		c.did[k]++
	}
	s := &specimen{file: h.file, load: c.base.load}
	mem := s.mem(len(h.file))
	defer mem.Release()
	u := &use{specimen: s, mem: mem, fs: mem, path: crashPath, rng: h.rng}
	hole := longer(h.rng, h.segment)
	if seed%realEvery == 0 {
		c.real++
		u.fs, u.path = vfs.OS(), filepath.Join(c.dir, "hostile.fdbm")
		if err := os.WriteFile(u.path, h.file, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(u.path, int64(len(h.file))+hole); err != nil {
			return err
		}
	} else if hole > 0 {
		overwrite(mem, int64(len(h.file))+hole-1, []byte{0})
	}
	modes := drawModes(h.rng)
	if seed%4 == 1 {
		modes = append([]string{"salvaged"}, modes...)
	}
	for _, mode := range modes {
		if err := u.within(mode); err != nil {
			return fmt.Errorf("seed %d, %s, %s: %s%d bytes longer: %w", seed, c.base.name, mode, h.what, hole, err)
		}
	}
	return nil
}

// tries is how often a file that took long is tested, as the machine may have been busy.
const tries = 4

func (c *campaign) again(seed uint64) (err error) {
	for range tries {
		var took slow
		if err = c.try(seed); !errors.As(err, &took) {
			return err
		}
	}
	return err
}

// note records the current seed in a place where it is found after the end of the process.
func (c *campaign) note(seed uint64) {
	if c.at != nil {
		c.at.WriteAt(fmt.Appendf(nil, "%-20d\n", seed), 0)
	}
}

// TestHostileFiles: files with right checksums and a wrong structure do no harm, whatever is done with them.
func TestHostileFiles(t *testing.T) {
	inTurn(t)
	limit, total := time.Minute, scaled(1000)
	if *hostileFiles > 0 {
		limit, total = 1<<62, *hostileFiles
	}
	// The garbage collector runs rarely. Without a memory limit, what is allocated while it runs would make it run
	// even more rarely.
	percent, most := debug.SetGCPercent(1000), debug.SetMemoryLimit(512<<20)
	defer func() { debug.SetGCPercent(percent); debug.SetMemoryLimit(most) }()
	over := make(chan struct{})
	defer close(over)
	go watch(over, t.Name())

	c := &campaign{dir: t.TempDir(), did: map[string]int{}}
	if *hostileAt != "" {
		f, err := os.Create(*hostileAt)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c.at = f
	}
	begin, found, done := time.Now(), 0, 0
	for ; done < total && time.Since(begin) < limit && found < 10; done++ {
		seed := *hostileFrom + uint64(done)
		c.note(seed)
		if err := c.again(seed); err != nil {
			t.Error(err)
			found++
		}
	}
	var all []string
	for _, k := range slices.Sorted(maps.Keys(c.did)) {
		all = append(all, k+" "+strconv.Itoa(c.did[k]))
	}
	t.Logf("%d files, %d of them real, in %v: %v", done, c.real, time.Since(begin).Round(time.Second), all)
}
