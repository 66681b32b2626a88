package hydra

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkGet is a GET of 16 + 32 bytes from a node in the same process: one-sided and by message, from one goroutine
// and from 50.
func BenchmarkGet(b *testing.B) {
	for _, how := range []string{"one-sided", "message"} {
		for _, goroutines := range []int{1, 50} {
			b.Run(fmt.Sprint(how, "/", goroutines), func(b *testing.B) {
				o := &Options{}
				if how == "message" {
					o.Pointers = -1
				}
				k := newCluster(b, 1, o)
				keys := make([][]byte, 1000)
				for i := range keys {
					keys[i] = fmt.Appendf(nil, "key %012d", i)
					_, err := k.c.Put(k.ctx, keys[i], make([]byte, 32))
					require.NoError(b, err)
					for range 2 {
						_, err = k.c.Get(k.ctx, keys[i])
						require.NoError(b, err)
					}
				}
				before := k.c.Stats()
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ResetTimer()
				for range goroutines {
					wg.Go(func() {
						var dst []byte
						for {
							i := next.Add(1)
							if i > int64(b.N) {
								return
							}
							var err error
							if dst, err = k.c.GetInto(k.ctx, keys[i*7919%1000], dst[:0]); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				after := k.c.Stats()
				b.ReportMetric(float64(after.Messages-before.Messages)/float64(b.N), "messages/op")
				b.ReportAllocs()
			})
		}
	}
}

// BenchmarkPut is a PUT of 16 + 32 bytes in memory mode.
func BenchmarkPut(b *testing.B) {
	for _, goroutines := range []int{1, 50} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			k := newCluster(b, 1, nil)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range goroutines {
				wg.Go(func() {
					var key []byte
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						key = fmt.Appendf(key[:0], "key %012d", i%1000)
						if _, err := k.c.Put(k.ctx, key, make([]byte, 32)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportAllocs()
		})
	}
}
