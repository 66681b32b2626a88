package dbm

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	followMeasure = flag.Int("follow.measure", 0, "measure how far a standby is behind, of a database with this number of records")
	followWithin  = flag.Bool("follow.within", false, "follow in the process that writes, not beside it")
	followEvery   = flag.Duration("follow.every", 200*time.Millisecond, "look for changes once in this time")
)

// TestMeasureFollow commits 10,000 times a second, with records of 100 bytes under random keys, for ten seconds. It
// reports how old the state of a following copy is at each moment after the first second. The first increment has
// all that was written since the backup.
func TestMeasureFollow(t *testing.T) {
	if *followMeasure == 0 {
		t.Skip("-follow.measure tells how many records")
	}
	path, copied := filepath.Join(t.TempDir(), "db"), filepath.Join(t.TempDir(), "copy")
	db, err := Open(path, &Options{Durability: Buffered})
	require.NoError(t, err)
	defer db.Close()
	key := func(i uint64) []byte {
		return binary.BigEndian.AppendUint64(make([]byte, 8), i%uint64(*followMeasure)*0x9E3779B97F4A7C15)
	}
	for i := 0; i < *followMeasure; {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for range min(10_000, *followMeasure-i) {
				if err := tx.Put(key(uint64(i)), make([]byte, 100)); err != nil {
					return err
				}
				i++
			}
			return nil
		}))
	}
	source, err := Open(path, &Options{ReadOnly: true, Beside: true})
	require.NoError(t, err)
	defer source.Close()
	if *followWithin {
		source = db
	}
	var full bytes.Buffer
	token, err := db.Backup(t.Context(), &full)
	require.NoError(t, err)
	_, err = Restore(t.Context(), copied, &full)
	require.NoError(t, err)
	standby, err := Open(copied, nil)
	require.NoError(t, err)
	defer standby.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	clock := []byte("clock")
	commits := 0
	go func() {
		r := rand.New(rand.NewPCG(1, 1))
		for begin := time.Now(); ctx.Err() == nil; {
			for commits < int(time.Since(begin).Seconds()*10_000) && ctx.Err() == nil {
				if err := db.Put(key(r.Uint64()), make([]byte, 100)); err != nil {
					t.Error(err)
					return
				}
				commits++
			}
			if err := db.Put(clock, binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	var behind []time.Duration
	sampled := make(chan struct{})
	go func() {
		defer close(sampled)
		time.Sleep(2 * time.Second)
		for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if v, err := standby.Get(clock); err == nil {
				behind = append(behind, time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(v)))))
			}
		}
	}()
	increments, bytes, largest := 0, int64(0), int64(0)
	err = source.Follow(ctx, token, *followEvery, func(have Token, r io.Reader) error {
		w := &counting{}
		if _, err := standby.ApplyBackup(ctx, have, io.TeeReader(r, w)); err != nil {
			return err
		}
		increments, bytes, largest = increments+1, bytes+w.n, max(largest, w.n)
		return nil
	})
	<-sampled
	require.ErrorIs(t, err, context.DeadlineExceeded)
	slices.Sort(behind)
	require.NotEmpty(t, behind)
	t.Logf("%d commits, %d increments of %.1f MB, %.1f MB at most; behind by %v in the middle, p99 %v, %v at most", commits, increments, float64(bytes)/1e6/float64(increments),
		float64(largest)/1e6, behind[len(behind)/2], behind[len(behind)*99/100], behind[len(behind)-1])
}
