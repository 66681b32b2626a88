package hydra

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkLocal measures a GET, a PUT, and Batches of 100 of each, of 16 + 32 bytes among 100,000 keys, by function
// calls of one goroutine. cpu-ns is the processor time of the process for one key.
func BenchmarkLocal(b *testing.B) {
	const n = 100_000
	for _, kind := range []Kind{Get, Put} {
		for _, size := range []int{1, 16, 100} {
			b.Run(fmt.Sprint([]string{Get: "get", Put: "put"}[kind], "/", size), func(b *testing.B) {
				k := newCluster(b, 1, nil)
				c, err := Local(k.node, nil)
				require.NoError(b, err)
				defer c.Close()
				list := make([]Request, size)
				keys := make([][]byte, n)
				value := make([]byte, 32)
				for i := range keys {
					keys[i] = fmt.Appendf(nil, "key:%012d", i)
					_, err := c.Put(k.ctx, keys[i], value)
					require.NoError(b, err)
				}
				r := rand.New(rand.NewPCG(1, 2))
				b.ReportAllocs()
				b.ResetTimer()
				began := cpuTime(b)
				for i := 0; i < b.N; i += size {
					for j := range list {
						list[j] = Request{Kind: kind, Key: keys[r.IntN(n)], Value: value}
					}
					if size > 1 {
						err = c.Batch(k.ctx, list)
					} else if kind == Get {
						_, err = c.GetInto(k.ctx, list[0].Key, list[0].Value[:0])
					} else {
						_, err = c.Put(k.ctx, list[0].Key, value)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the processor time of the process, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
