package protocol

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	decodes     = flag.Int("hostile.decodes", 200_000, "bodies that TestHostileBodies decodes")
	hostileSeed = flag.Uint64("hostile.seed", 1, "seed of what it does to them")
)

// TestHostileBodies changes valid bodies as a hostile peer would, and decodes them. Each is refused as malformed, or
// is decoded exactly. No decoder allocates memory in proportion to a number in a body.
func TestHostileBodies(t *testing.T) {
	workers := runtime.GOMAXPROCS(0)
	var refused, taken atomic.Int64
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(*hostileSeed, uint64(w)))
			codecs := codecs()
			var b []byte
			for range *decodes / workers {
				c := &codecs[r.IntN(len(codecs))]
				if len(c.good) == 0 {
					continue
				}
				b = append(b[:0], c.good[r.IntN(len(c.good))]...)
				if len(b) > 4096 {
					b = b[:r.IntN(4096)]
				}
				b = rewritten(r, b, codecs)
				if _, err := c.parse(b); err == nil {
					if !c.check(t, b) {
						return
					}
					taken.Add(1)
				} else if refused.Add(1); !assert.ErrorIs(t, err, ErrMalformed) {
					return
				}
			}
		})
	}
	all.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d bodies: %d refused, %d taken", refused.Load()+taken.Load(), refused.Load(), taken.Load())
	require.Positive(t, refused.Load())
	require.Positive(t, taken.Load())
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(16<<20))
}

// rewritten changes a body in up to four places: bits, bytes, numbers set to their maximum, its end, and parts of
// other bodies.
func rewritten(r *rand.Rand, b []byte, codecs []codec) []byte {
	for range 1 + r.IntN(4) {
		at := 0
		if len(b) > 0 {
			at = r.IntN(len(b))
		}
		switch r.IntN(6) {
		case 0:
			if len(b) > 0 {
				b[at] ^= 1 << r.IntN(8)
			}
		case 1:
			if len(b) > 0 {
				b[at] = byte(r.Uint32())
			}
		case 2:
			copy(b[at:], bytes.Repeat([]byte{255}, 1+r.IntN(8)))
		case 3:
			b = b[:at]
		case 4:
			b = append(b, make([]byte, r.IntN(16))...)
		case 5:
			if c := &codecs[r.IntN(len(codecs))]; len(c.good) > 0 {
				other := c.good[r.IntN(len(c.good))]
				b = append(b[:at], other[:min(len(other), r.IntN(64))]...)
			}
		}
	}
	return b
}
