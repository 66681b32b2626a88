package dbm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"flashdbm/logstore"
)

// withDamagedKey returns a database with the keys "", "a", one that is too long for a leaf and is damaged in the
// file, and "z".
func withDamagedKey(t *testing.T) (db *DB, long []byte) {
	t.Helper()
	file, long := damagedKeyFile(t)
	return openFile(t, file), long
}

// openFile opens a database whose file has these bytes.
func openFile(t *testing.T, file []byte) *DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.fdbm")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// damagedKeyFile returns the bytes of the file of that database.
func damagedKeyFile(t *testing.T) (file, long []byte) {
	t.Helper()
	long = bytes.Repeat([]byte("long"), 1000)
	path := filepath.Join(t.TempDir(), "a.fdbm")
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	for _, k := range [][]byte{{}, []byte("a"), long, []byte("z")} {
		require.NoError(t, db.Put(k, []byte("value")))
	}
	require.NoError(t, db.Close())
	file, err = os.ReadFile(path)
	require.NoError(t, err)
	for at := 0; ; {
		i := bytes.Index(file[at:], long)
		if i < 0 {
			require.NotZero(t, at)
			break
		}
		file[at+i+3000] ^= 1
		at += i + 1
	}
	return file, long
}

// TestCursorOnDamagedKey: a long key that cannot be read is an error of every operation that needs it, in whatever
// order, and is never taken for the empty key.
func TestCursorOnDamagedKey(t *testing.T) {
	inTurn(t)
	t.Parallel()
	file, _ := damagedKeyFile(t)
	calls := map[string]func(t *testing.T, c *Cursor){
		"key":     func(t *testing.T, c *Cursor) { require.Nil(t, c.Key()) },
		"value":   func(t *testing.T, c *Cursor) { require.Nil(t, c.Value()) },
		"delete":  func(t *testing.T, c *Cursor) { require.ErrorIs(t, c.Delete(), ErrCorrupt) },
		"forward": func(t *testing.T, c *Cursor) { c.Next() },
		"back":    func(t *testing.T, c *Cursor) { c.Prev() },
	}
	for first, one := range calls {
		for second, two := range calls {
			for name, o := range map[string]TxOptions{"": {}, "serializable ": {Serializable: true}} {
				for _, written := range []bool{false, true} {
					t.Run(name+first+" "+second, func(t *testing.T) {
						db := openFile(t, file)
						tx, err := db.Begin(o)
						require.NoError(t, err)
						if written {
							require.NoError(t, tx.Put([]byte("m"), nil))
						}
						c := tx.Cursor()
						if c.Seek([]byte("b")) { // the long key; a move that needs it has failed already
							one(t, c)
							if c.Err() != nil {
								two(t, c)
							}
						}
						if c.Err() != nil {
							require.ErrorIs(t, c.Err(), ErrCorrupt)
							require.ErrorIs(t, tx.Err(), ErrCorrupt)
							require.ErrorIs(t, tx.Commit(), ErrCorrupt)
						} else {
							require.NoError(t, tx.Rollback())
						}
						for _, k := range []string{"", "a", "z"} {
							ok, err := db.Has([]byte(k))
							require.NoError(t, err)
							require.True(t, ok, "%q is gone", k)
						}
					})
				}
			}
		}
	}
}

// TestIterationOverDamagedKey ends with an error, in both directions.
func TestIterationOverDamagedKey(t *testing.T) {
	db, long := withDamagedKey(t)
	for _, written := range []bool{false, true} {
		for name, all := range map[string]func(*Tx) int{
			"all": func(tx *Tx) (n int) {
				for range tx.All() {
					n++
				}
				return n
			},
			"back": func(tx *Tx) (n int) {
				for range tx.Backward(nil, nil) {
					n++
				}
				return n
			},
			"prefix": func(tx *Tx) (n int) {
				for range tx.Prefix(long[:20]) {
					n++
				}
				return n
			},
		} {
			t.Run(name, func(t *testing.T) {
				enough := errors.New("not to be returned")
				require.ErrorIs(t, db.Update(func(tx *Tx) error {
					if written {
						require.NoError(t, tx.Put([]byte("m"), nil))
					}
					if all(tx) > 3 {
						return enough
					}
					return nil
				}), ErrCorrupt)
			})
		}
	}
}

// TestIterationUpToDamagedKey: if the position of a record in memory can only be determined by comparing it with a
// damaged key, a scan ends with an error.
func TestIterationUpToDamagedKey(t *testing.T) {
	file, long := damagedKeyFile(t)
	path := filepath.Join(t.TempDir(), "a.fdbm")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	db, err := openUnsynced(path, nil)
	require.NoError(t, err)
	defer db.Close()
	above := append(bytes.Clone(long), "above"...)
	for range 20 { // until the record is merged into the tree, which fails
		err := db.Put(above, nil)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			break
		}
		for _, from := range []string{"", "a"} {
			require.ErrorIs(t, db.View(func(tx *Tx) error {
				for k := range tx.Range([]byte(from), nil) {
					require.Less(t, len(k), 2)
				}
				return nil
			}), ErrCorrupt)
			require.ErrorIs(t, db.View(func(tx *Tx) error {
				for k := range tx.Keys([]byte(from), nil) {
					require.Less(t, len(k), 2)
				}
				return nil
			}), ErrCorrupt)
		}
	}
}

// TestFileCutShort: if a mapping cannot be read, the error names the operation, the file and the offset.
func TestFileCutShort(t *testing.T) {
	db := newDB(t, nil)
	value := bytes.Repeat([]byte("v"), 1000)
	require.NoError(t, db.Update(func(tx *Tx) error {
		for i := range 5000 {
			if err := tx.Put([]byte{byte(i >> 8), byte(i)}, value); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint())
	require.NoError(t, db.Close())
	path := db.Path()
	for name, read := range map[string]func(db *DB) error{
		"view": func(db *DB) error {
			return db.View(func(tx *Tx) error {
				for range tx.All() {
				}
				return nil
			})
		},
		"update": func(db *DB) error {
			return db.Update(func(tx *Tx) error {
				for range tx.All() {
				}
				return nil
			})
		},
		"get": func(db *DB) error {
			for i := range 5000 {
				if _, err := db.Get([]byte{byte(i >> 8), byte(i)}); err != nil {
					return err
				}
			}
			return nil
		},
		"check": func(db *DB) error { return db.Check(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			whole, err := os.ReadFile(path)
			require.NoError(t, err)
			copied := filepath.Join(t.TempDir(), "b.fdbm")
			require.NoError(t, os.WriteFile(copied, whole, 0o600))
			db, err := Open(copied, nil)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(copied, 64<<10))
			err = read(db)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, copied)
			var page *logstore.PageError
			require.ErrorAs(t, err, &page)
			require.GreaterOrEqual(t, page.Addr, uint64(16))
			db.Close()
		})
	}
}

// TestFaultOfTheCaller: a fault in memory that does not belong to the database remains the caller's panic.
func TestFaultOfTheCaller(t *testing.T) {
	db := newDB(t, nil)
	require.Panics(t, func() {
		db.View(func(*Tx) error {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			touchUnmapped(t)
			return nil
		})
	})
	require.NoError(t, db.Put([]byte("k"), nil))
}
