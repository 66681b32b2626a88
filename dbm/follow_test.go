package dbm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// copyOf returns a copy of a database, made from a backup, and the token of the backup.
func copyOf(t *testing.T, source *DB) (*DB, Token) {
	t.Helper()
	var full bytes.Buffer
	token, err := source.Backup(t.Context(), &full)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy")
	_, err = Restore(t.Context(), copied, &full)
	require.NoError(t, err)
	db, err := Open(copied, nil)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db, token
}

// TestFollow keeps a copy up to date with a database to which several goroutines write, in the same process and
// beside it. At each moment, each writer's counter and records in the copy agree, and in the end the copy is
// complete.
func TestFollow(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("beside=%v", beside), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "db")
			db, err := Open(path, &Options{Durability: Buffered})
			require.NoError(t, err)
			defer db.Close()
			source := db
			if beside {
				source, err = Open(path, &Options{ReadOnly: true, Beside: true})
				require.NoError(t, err)
				defer source.Close()
			}
			standby, token := copyOf(t, source)

			ctx, stop := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			var increments atomic.Int32
			for w := range 3 {
				wg.Go(func() {
					for n := 1; n <= 1500; n++ {
						for n == 750 && increments.Load() == 0 && ctx.Err() == nil { // so that there are several increments, however fast the writers are
							time.Sleep(time.Millisecond)
						}
						err := db.Update(func(tx *Tx) error {
							if _, err := tx.Increment(fmt.Appendf(nil, "count %d", w), 1); err != nil {
								return err
							}
							return tx.Put(fmt.Appendf(nil, "writer %d record %08d", w, n), make([]byte, n%900))
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			enough := errors.New("enough")
			go func() {
				wg.Wait()
				for n := int64(-1); n != 4503; {
					var err error
					if n, err = standby.Len(); err != nil {
						t.Error(err)
						break
					}
					time.Sleep(time.Millisecond)
				}
				stop(enough)
			}()
			err = source.Follow(ctx, token, 5*time.Millisecond, func(have Token, r io.Reader) error {
				require.Equal(t, token, have, "each begins where the last one ended")
				if token, err = standby.ApplyBackup(ctx, have, r); err != nil {
					return err
				}
				increments.Add(1)
				return standby.View(func(tx *Tx) error {
					for w := range 3 {
						n := 0
						for range tx.Prefix(fmt.Appendf(nil, "writer %d ", w)) {
							n++
						}
						v, err := tx.Get(fmt.Appendf(nil, "count %d", w))
						if errors.Is(err, ErrNotFound) {
							v, err = []byte("0"), nil
						}
						require.NoError(t, err)
						require.Equal(t, fmt.Sprint(n), string(v))
					}
					return tx.Err()
				})
			})
			require.ErrorIs(t, err, enough)
			require.Greater(t, increments.Load(), int32(1))
			requireSame(t, readAll(t, db), readAll(t, standby))
		})
	}
}

// TestFollowEnds: Follow ends if apply returns an error or does not read its increment to the end.
func TestFollowEnds(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	token, err := db.Backup(t.Context(), io.Discard)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("a"), make([]byte, 1<<20)))
	broken := errors.New("broken")
	require.ErrorIs(t, db.Follow(t.Context(), token, time.Millisecond, func(Token, io.Reader) error { return broken }), broken)
	require.ErrorContains(t, db.Follow(t.Context(), token, time.Millisecond, func(Token, io.Reader) error { return nil }), "not read to its end")
	require.ErrorIs(t, db.Follow(t.Context(), Token{}, time.Millisecond, func(Token, io.Reader) error { return nil }), ErrToken)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tx, now, err := db.readAt()
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, db.Follow(ctx, now, time.Hour, nil), context.Canceled)
}

// TestFollowTooOld: if an increment was too old, the next one is taken at once, and the ones after that at the
// usual intervals.
func TestFollowTooOld(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	defer db.Close()
	token, err := db.Backup(t.Context(), io.Discard)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("a"), nil))
	ended := errors.New("ended")
	tries, begun := 0, time.Now()
	require.ErrorIs(t, db.Follow(t.Context(), token, 20*time.Millisecond, func(have Token, _ io.Reader) error {
		require.Equal(t, token, have)
		if tries++; tries == 6 {
			return ended
		}
		return ErrSnapshotTooOld
	}), ended)
	require.GreaterOrEqual(t, time.Since(begun), 40*time.Millisecond, "two pauses between six tries")
}

// TestFollowLastPage: a commit that is added to the last page of the log is passed on like one in a group of its
// own, even if nothing follows it.
func TestFollowLastPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := Open(path, &Options{Durability: WriteThrough})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Put([]byte("first"), []byte("value")))
	source, err := Open(path, &Options{ReadOnly: true, Beside: true})
	require.NoError(t, err)
	defer source.Close()
	standby, token := copyOf(t, source)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- source.Follow(ctx, token, time.Millisecond, func(have Token, r io.Reader) (err error) {
			token, err = standby.ApplyBackup(ctx, have, r)
			return err
		})
	}()
	for i := range 40 {
		if i%4 == 3 {
			require.NoError(t, db.DeleteRange([]byte{byte(i - 2)}, []byte{byte(i)}))
		} else {
			require.NoError(t, db.Put([]byte{byte(i)}, []byte("value")))
		}
		require.Eventually(t, func() bool {
			want, have := readAll(t, db), readAll(t, standby)
			return fmt.Sprint(want) == fmt.Sprint(have)
		}, 10*time.Second, time.Millisecond, "commit %d", i)
	}
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
