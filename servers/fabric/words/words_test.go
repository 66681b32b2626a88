package words

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCopies compares copies of all alignments and lengths with copy, and checks that the bytes around them are
// unchanged.
func TestCopies(t *testing.T) {
	mem, err := Alloc(256)
	require.NoError(t, err)
	defer Free(mem)
	require.Equal(t, make([]byte, 256), mem)
	for from := range 9 {
		for to := range 9 {
			for n := range 50 {
				source, want := make([]byte, 128), make([]byte, 256)
				for i := range source {
					source[i] = byte(rand.Uint32())
				}
				for i := range want {
					want[i] = byte(rand.Uint32())
				}
				copy(mem, want)
				copy(want[to:], source[from:from+n])
				Write(mem[to:to+n], source[from:from+n])
				require.True(t, bytes.Equal(want, mem), "Write from %d to %d, %d bytes", from, to, n)
				back := bytes.Clone(source)
				copy(source[from:], mem[to:to+n])
				Read(back[from:from+n], mem[to:to+n])
				exact := make([]byte, n) // no pointer goes past its end: checkptr checks that with the race detector
				Read(exact, mem[to:to+n])
				require.True(t, bytes.Equal(mem[to:to+n], exact))
				Write(mem[to:to+n], exact)
				require.True(t, bytes.Equal(source, back), "Read from %d to %d, %d bytes", to, from, n)
			}
		}
	}
}

func TestAlignment(t *testing.T) {
	mem, err := Alloc(64)
	require.NoError(t, err)
	defer Free(mem)
	assert.Panics(t, func() { Load(mem, 4) })
	assert.Panics(t, func() { Load(mem, 64) })
	Store(mem, 8, 7)
	assert.EqualValues(t, 7, Load(mem, 8))
	assert.EqualValues(t, 7, Swap(mem, 8, 1))
}

// TestTearing: two goroutines write words of eight equal bytes to a region. A third goroutine never reads any other
// word.
func TestTearing(t *testing.T) {
	mem, err := Alloc(1 << 12)
	require.NoError(t, err)
	defer Free(mem)
	var stop atomic.Bool
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			private := make([]byte, len(mem)+w) // the second one is not aligned as the region is
			for i := byte(w); !stop.Load(); i += 2 {
				for k := range private {
					private[k] = i
				}
				Write(mem[8:], private[w+8:])
			}
		})
	}
	private := make([]byte, len(mem))
	for range 4_000 {
		Read(private, mem)
		for i := 0; i < len(private); i += 8 {
			if private[i] != private[i+7] || !bytes.Equal(private[i:i+7], private[i+1:i+8]) {
				t.Fatalf("a torn word: %x", private[i:i+8])
			}
		}
	}
	stop.Store(true)
	writers.Wait()
}
