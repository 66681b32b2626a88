package logstore

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore/vfs"
)

func benchStore(b *testing.B) (*Store, string) {
	path := filepath.Join(b.TempDir(), "bench")
	s, rec, err := Open(vfs.OS(), path, Options{})
	require.NoError(b, err)
	require.NoError(b, s.EndRecovery(rec))
	benchCheckpoint(b, s)
	benchCheckpoint(b, s)
	return s, path
}

func benchCheckpoint(b *testing.B, s *Store) {
	require.NoError(b, s.Reserve(8, true))
	s.Rebase(s.LastGroup())
	c := s.BeginCheckpoint([]byte("table"))
	for done := false; !done; {
		var err error
		done, err = c.WritePart()
		require.NoError(b, err)
	}
	require.NoError(b, c.Finish())
	s.Release(8)
}

// benchGroup appends a group of n pages, one of which is full.
func benchGroup(b *testing.B, s *Store, n int) {
	g := s.Begin(PageGroup)
	for range n {
		_, body := g.Page(BornBit | 1)
		body[0] = 1
	}
	if _, err := g.Commit(1); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppend appends groups without syncing, into segments used before.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint("pages=", n), func(b *testing.B) {
			s, _ := benchStore(b)
			defer s.Close()
			const round = 4096 // pages between checkpoints
			for range 3 {      // until segments are reused
				require.NoError(b, s.Reserve(2*round, true))
				for range round / n {
					benchGroup(b, s, n)
				}
				s.Release(2 * round)
				benchCheckpoint(b, s)
			}
			b.ReportAllocs()
			b.SetBytes(int64(n) * PageSize)
			pages := round
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				if pages += n; pages > round {
					b.StopTimer()
					benchCheckpoint(b, s)
					require.NoError(b, s.Reserve(2*round, true))
					s.Release(2 * round)
					pages = n
					b.StartTimer()
				}
				benchGroup(b, s, n)
			}
		})
	}
}

// BenchmarkScan opens a file with a log of 32 MiB.
func BenchmarkScan(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint("pages=", n), func(b *testing.B) {
			s, path := benchStore(b)
			const total = 32 << 20 / PageSize
			require.NoError(b, s.Reserve(total, true))
			for range total / n {
				benchGroup(b, s, n)
			}
			require.NoError(b, s.Sync())
			require.NoError(b, s.Close())
			b.ReportAllocs()
			b.SetBytes(total * PageSize)
			b.ResetTimer()
			for range b.N {
				s, rec, err := Open(vfs.OS(), path, Options{})
				require.NoError(b, err)
				require.Len(b, rec.Groups, total/n)
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}
