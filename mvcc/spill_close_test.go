package mvcc

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
	"flashdbm/logstore/vfs"
)

// TestCloseBesideLargeCommits: writers that wait for memory, room or background work when Close begins either succeed
// or get ErrClosed. Close returns, and every acknowledged commit is there.
func TestCloseBesideLargeCommits(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint(full), func(t *testing.T) {
			for round := range 5 {
				mem := vfs.NewMem(0)
				opts := spilling(Durable)
				opts.Manual = false
				opts.MemoryLimit = 256 << 10
				if full {
					opts.Store.MaxFileSize = 6 << 20
				}
				e := openOn(t, mem, opts)
				var mu sync.Mutex
				committed := map[string]string{}
				var wg sync.WaitGroup
				for w := range 6 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						for i := 0; ; i++ {
							key, value := fmt.Sprintf("w%d", w), fmt.Sprint(i)
							err := update(e, TxOptions{}, func(tx *Tx) error {
								if _, err := tx.Has([]byte(key)); err != nil {
									return err
								}
								for j := range 40 + 400*(w%2) {
									if err := tx.Put(fmt.Appendf(nil, "%s-%04d", key, j*7%1000), fmt.Appendf(nil, "%0100d", i)); err != nil {
										return err
									}
								}
								return tx.Put([]byte(key), []byte(value))
							})
							switch {
							case err == nil:
								mu.Lock()
								committed[key] = value
								mu.Unlock()
							case errors.Is(err, ErrClosed):
								return
							case !errors.Is(err, ErrConflict) && !errors.Is(err, logstore.ErrFull):
								t.Errorf("%v", err)
								return
							}
						}
					}()
				}
				time.Sleep(time.Duration(5+20*round) * time.Millisecond)
				within(t, func() {
					if err := e.Close(); err != nil && !errors.Is(err, logstore.ErrFull) {
						t.Errorf("close: %v", err)
					}
				})
				within(t, wg.Wait)
				_, err := e.Begin(TxOptions{})
				require.ErrorIs(t, err, ErrClosed)
				e = openOn(t, mem, opts)
				tx := begin(t, e, TxOptions{ReadOnly: true})
				for key, value := range committed {
					require.Equal(t, value, get(t, tx, key))
				}
				require.NoError(t, tx.Rollback())
				_ = e.Close()
				mem.Release()
			}
		})
	}
}
