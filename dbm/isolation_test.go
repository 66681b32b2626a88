package dbm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func allDurabilities(t *testing.T, test func(t *testing.T, db *DB)) {
	for _, d := range []Durability{Durable, WriteThrough, Buffered} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			test(t, newDB(t, &Options{Durability: d, MemoryLimit: 1 << 20, RedoLimit: 1 << 20}))
		})
	}
}

// persist calls UpdateContext until the transaction wins. On a machine so busy that the others do not wait at the
// gate for long enough, even a transaction that runs alone may lose too often.
func persist(t *testing.T, db *DB, o TxOptions, fn func(tx *Tx) error) error {
	err := error(ErrConflict)
	for round := 0; round < 100 && errors.Is(err, ErrConflict); round++ {
		err = db.UpdateContext(t.Context(), o, fn)
	}
	return err
}

// scaled is n, or less in short tests.
func scaled(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

func number(t testing.TB, tx *Tx, key string) int {
	v, err := tx.Get([]byte(key))
	if errors.Is(err, ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	n, err := strconv.Atoi(string(v))
	if err != nil {
		t.Error(err)
	}
	return n
}

func setNumber(tx *Tx, key string, n int) error {
	return tx.Put([]byte(key), []byte(strconv.Itoa(n)))
}

// A skew is a pair of transactions that each read something and then write something else. If they run one after
// the other, the second sees what the first has done and writes nothing. If both run from the same snapshot, both
// write, which violates their common condition.
type skew struct {
	name string
	free func(tx *Tx) (bool, error) // neither has written yet
}

var skews = []skew{
	{"keys", func(tx *Tx) (bool, error) {
		for _, k := range []string{"on-call 1", "on-call 2"} {
			if _, err := tx.Get([]byte(k)); !errors.Is(err, ErrNotFound) {
				return false, err
			}
		}
		return true, nil
	}},
	{"has", func(tx *Tx) (bool, error) {
		one, err := tx.Has([]byte("on-call 1"))
		two, err2 := tx.Has([]byte("on-call 2"))
		return !one && !two, errors.Join(err, err2)
	}},
	{"reader", func(tx *Tx) (bool, error) {
		for _, k := range []string{"on-call 1", "on-call 2"} {
			if _, _, err := tx.ValueReader([]byte(k)); !errors.Is(err, ErrNotFound) {
				return false, err
			}
		}
		return true, nil
	}},
	{"prefix", func(tx *Tx) (bool, error) {
		for range tx.Prefix([]byte("on-call")) {
			return false, nil
		}
		return true, tx.Err()
	}},
	{"backward", func(tx *Tx) (bool, error) {
		for k := range tx.Backward(nil, []byte("zz")) {
			return k[0] != 'o', nil
		}
		return true, tx.Err()
	}},
	{"seek", func(tx *Tx) (bool, error) {
		c := tx.Cursor()
		found := c.Seek([]byte("on"))
		return !found || c.Key()[0] != 'o', c.Err()
	}},
	{"seek and back", func(tx *Tx) (bool, error) {
		c := tx.Cursor()
		c.Seek([]byte("on"))
		free := c.Key() == nil || c.Key()[0] != 'o'
		c.Next()
		c.Prev()
		c.Prev()
		return free, c.Err()
	}},
	{"length", func(tx *Tx) (bool, error) {
		n, err := tx.Len()
		return n == 1, err
	}},
}

// TestWriteSkew: snapshot isolation lets both write, which is how it differs from serializable, which lets only one
// write.
func TestWriteSkew(t *testing.T) {
	for _, s := range skews {
		for _, serializable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, serializable %v", s.name, serializable), func(t *testing.T) {
				db := newDB(t, nil)
				require.NoError(t, db.Put([]byte("a"), nil))
				var txs []*Tx
				for i := range 2 {
					tx, err := db.Begin(TxOptions{Serializable: serializable})
					require.NoError(t, err)
					free, err := s.free(tx)
					require.NoError(t, err)
					require.True(t, free)
					require.NoError(t, tx.Put(fmt.Appendf(nil, "on-call %d", i+1), nil))
					txs = append(txs, tx)
				}
				require.NoError(t, txs[0].Commit())
				for range 2 { // after two commits, the first one is no longer in the list of commits
					require.NoError(t, db.Put([]byte("a"), nil))
				}
				err := txs[1].Commit()
				if serializable {
					require.ErrorIs(t, err, ErrConflict)
				} else {
					require.NoError(t, err)
				}
			})
		}
	}
}

// TestNoWriteSkewUnderLoad: many goroutines take free items in serializable transactions. No item is taken twice.
func TestNoWriteSkewUnderLoad(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		require.NoError(t, db.Put([]byte("a"), nil))
		for range scaled(20) {
			s := skews[rand.IntN(len(skews))]
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					err := persist(t, db, TxOptions{Serializable: true}, func(tx *Tx) error {
						free, err := s.free(tx)
						if err != nil || !free {
							return err
						}
						return tx.Put(fmt.Appendf(nil, "on-call %d", i+1), nil)
					})
					if err != nil {
						t.Errorf("%s: %v", s.name, err)
					}
				})
			}
			wg.Wait()
			n, err := db.Len()
			require.NoError(t, err)
			require.EqualValues(t, 2, n, s.name)
			require.NoError(t, db.Delete([]byte("on-call 1")))
			require.NoError(t, db.Delete([]byte("on-call 2")))
		}
	})
}

// TestNoLostUpdates: increments of a few counters that everyone uses, in all kinds of transactions, add up.
func TestNoLostUpdates(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		const counters, goroutines = 3, 8
		each := scaled(100)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := range each {
					key := fmt.Sprint("counter ", (g+i)%counters)
					if err := persist(t, db, TxOptions{Serializable: g%2 == 0}, func(tx *Tx) error {
						return setNumber(tx, key, number(t, tx, key)+1)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, db.View(func(tx *Tx) error {
			sum := 0
			for i := range counters {
				sum += number(t, tx, fmt.Sprint("counter ", i))
			}
			require.Equal(t, goroutines*each, sum)
			return nil
		}))
	})
}

// TestIDsFromLen: if new ids are the number of records, no id is given twice.
func TestIDsFromLen(t *testing.T) {
	allDurabilities(t, func(t *testing.T, db *DB) {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for range scaled(30) {
					if err := persist(t, db, TxOptions{}, func(tx *Tx) error {
						n, err := tx.Len()
						if err != nil {
							return err
						}
						return tx.Put(fmt.Append(nil, n), fmt.Append(nil, g))
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		n, err := db.Len()
		require.NoError(t, err)
		require.EqualValues(t, 4*scaled(30), n)
	})
}

// TestBank transfers money while other transactions add up the accounts, in every way, both in short and in long
// transactions. The sum never changes. As no account is ever missing from a sum, or counted before and after a
// transfer, reads are neither dirty nor fractured.
func TestBank(t *testing.T) {
	const accounts, each = 50, 100
	account := func(i int) string { return fmt.Sprintf("account %02d", i) }
	allDurabilities(t, func(t *testing.T, db *DB) {
		require.NoError(t, db.Update(func(tx *Tx) error {
			for i := range accounts {
				if err := setNumber(tx, account(i), each); err != nil {
					return err
				}
			}
			return nil
		}))
		stop := make(chan struct{})
		var readers, writers sync.WaitGroup
		for g := range 3 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond): // otherwise this would keep two processors busy
					}
					check := func(tx *Tx) error { return sumOf(t, tx, g, accounts*each, account) }
					var err error
					if g == 2 {
						err = db.Update(check)
					} else {
						err = db.View(check)
					}
					if err != nil && !errors.Is(err, ErrSnapshotTooOld) {
						t.Error(err)
						return
					}
				}
			})
		}
		for g := range 4 {
			writers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 7))
				for range scaled(300) {
					from, to, amount := account(rng.IntN(accounts)), account(rng.IntN(accounts)), rng.IntN(20)
					if from == to {
						continue
					}
					if err := persist(t, db, TxOptions{}, func(tx *Tx) error {
						a, b := number(t, tx, from), number(t, tx, to)
						if a < amount {
							return nil
						}
						if a == amount { // an empty account is closed
							if err := tx.Delete([]byte(from)); err != nil {
								return err
							}
						} else if err := setNumber(tx, from, a-amount); err != nil {
							return err
						}
						return setNumber(tx, to, b+amount)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		readers.Wait()
		require.NoError(t, db.Check(t.Context()))
	})
}

// sumOf adds up all accounts, several times in one transaction.
func sumOf(t *testing.T, tx *Tx, g, want int, account func(int) string) error {
	for round := range 3 {
		sum := 0
		switch (g + round) % 3 {
		case 0:
			for _, v := range tx.All() {
				n, err := strconv.Atoi(string(v))
				if err != nil {
					return err
				}
				sum += n
			}
		case 1:
			for _, v := range tx.Backward(nil, nil) {
				n, err := strconv.Atoi(string(v))
				if err != nil {
					return err
				}
				sum += n
			}
		default:
			for i := range want / 100 {
				v, err := tx.Get([]byte(account(i)))
				if errors.Is(err, ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				n, err := strconv.Atoi(string(v))
				if err != nil {
					return err
				}
				sum += n
			}
		}
		if tx.Err() == nil && sum != want {
			t.Errorf("the sum is %d", sum)
		}
	}
	return nil
}
