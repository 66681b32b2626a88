package dbm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"flashdbm/dbm"
)

// What docs/coming-from shows is taken from here, word for word.

// orderKey sorts as the numbers do.
func orderKey(id int64) []byte {
	return binary.BigEndian.AppendUint64([]byte("orders/"), uint64(id))
}

func Example_comingFromBbolt() {
	dir, err := os.MkdirTemp("", "flashdbm-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "shop.fdbm")

	db, err := dbm.Open(path, &dbm.Options{LockTimeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	err = db.Update(func(tx *dbm.Tx) error {
		id, err := tx.Increment([]byte("sequence/orders"), 1)
		if err != nil {
			return err
		}
		return tx.Put(orderKey(id), []byte("two apples"))
	})
	if err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *dbm.Tx) error {
		for key, value := range tx.Prefix([]byte("orders/")) {
			fmt.Printf("order %d: %s\n", binary.BigEndian.Uint64(key[len("orders/"):]), value)
		}
		_, err := tx.Get([]byte("orders/none"))
		if errors.Is(err, dbm.ErrNotFound) {
			fmt.Println("there is no such order")
			return nil
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	// A cursor goes both ways, and reports whether there is a record.
	err = db.View(func(tx *dbm.Tx) error {
		c := tx.Cursor()
		for ok := c.Seek([]byte("orders/")); ok && bytes.HasPrefix(c.Key(), []byte("orders/")); ok = c.Next() {
			fmt.Printf("%q\n", c.Key())
		}
		return c.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// order 1: two apples
	// there is no such order
	// "orders/\x00\x00\x00\x00\x00\x00\x00\x01"
}

func Example_comingFromBadger() {
	db, remove := newExample()
	defer remove()

	// Update tries again after a conflict. Begin, Commit and Rollback leave that to you.
	for {
		tx, err := db.Begin(dbm.TxOptions{Serializable: true})
		if err != nil {
			log.Fatal(err)
		}
		if err = tx.Put([]byte("users/ann"), []byte("ann@example.org")); err == nil {
			err = tx.Commit()
		}
		tx.Rollback() // of a transaction that has ended it does nothing
		if err == nil {
			break
		}
		if !errors.Is(err, dbm.ErrConflict) {
			log.Fatal(err)
		}
	}

	batch := db.Batch()
	for _, name := range []string{"bob", "eve"} {
		if err := batch.Put([]byte("users/"+name), []byte(name+"@example.org")); err != nil {
			log.Fatal(err)
		}
	}
	if err := batch.Commit(); err != nil {
		log.Fatal(err)
	}

	// Keys reads no value, as an iterator without PrefetchValues.
	prefix := []byte("users/")
	err := db.View(func(tx *dbm.Tx) error {
		for key := range tx.Keys(prefix, dbm.PrefixEnd(prefix)) {
			fmt.Printf("%s\n", key)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// users/ann
	// users/bob
	// users/eve
}

func Example_comingFromPebble() {
	db, remove := newExample()
	defer remove()

	batch := db.Batch()
	for _, day := range []string{"2026-01-30", "2026-01-31", "2026-02-01", "2026-02-02"} {
		if err := batch.Put([]byte("log/"+day), []byte("quiet")); err != nil {
			log.Fatal(err)
		}
	}
	if err := batch.Commit(); err != nil { // pebble.Sync is the default; pebble.NoSync is Options.Durability: dbm.Buffered
		log.Fatal(err)
	}

	// An iterator with bounds is a range. Backward is one from its upper bound on.
	err := db.View(func(tx *dbm.Tx) error {
		for key := range tx.Range([]byte("log/2026-01"), []byte("log/2026-02")) {
			fmt.Printf("%s\n", key)
		}
		for key := range tx.Backward([]byte("log/"), dbm.PrefixEnd([]byte("log/"))) {
			fmt.Printf("newest: %s\n", key)
			break
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// A snapshot is one moment for any number of goroutines, until it is closed.
	snapshot, err := db.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	if err := db.Delete([]byte("log/2026-02-02")); err != nil {
		log.Fatal(err)
	}
	err = snapshot.View(func(tx *dbm.Tx) error {
		n, err := tx.Len()
		fmt.Println("in the snapshot:", n)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// log/2026-01-30
	// log/2026-01-31
	// newest: log/2026-02-02
	// in the snapshot: 4
}

func Example_comingFromLMDB() {
	db, remove := newExample()
	defer remove()

	err := db.Update(func(tx *dbm.Tx) error {
		if err := tx.Insert([]byte("m"), []byte("first")); err != nil { // MDB_NOOVERWRITE
			return err
		}
		return tx.Put([]byte("t"), []byte("second"))
	})
	if err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *dbm.Tx) error { return tx.Insert([]byte("m"), []byte("again")) })
	fmt.Println("MDB_KEYEXIST:", errors.Is(err, dbm.ErrExists))

	err = db.View(func(tx *dbm.Tx) error {
		c := tx.Cursor()
		if c.Seek([]byte("n")) { // MDB_SET_RANGE
			fmt.Printf("at or after n: %s\n", c.Key())
		}
		if c.Prev() { // MDB_PREV
			fmt.Printf("before it: %s\n", c.Key())
		}
		if c.Last() { // MDB_LAST
			fmt.Printf("last: %s is %s\n", c.Key(), c.Value())
		}
		return c.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// MDB_KEYEXIST: true
	// at or after n: t
	// before it: m
	// last: t is second
}

// putUser stores a user and the entry of an index by city, both or none.
func putUser(tx *dbm.Tx, name, city string) error {
	old, err := tx.GetAndPut([]byte("user/"+name), []byte(city))
	if err != nil {
		return err
	}
	if old != nil {
		if err := tx.Delete([]byte("city/" + string(old) + "/" + name)); err != nil {
			return err
		}
	}
	return tx.Put([]byte("city/"+city+"/"+name), nil)
}

func Example_comingFromSQLite() {
	db, remove := newExample()
	defer remove()

	err := db.Update(func(tx *dbm.Tx) error { // BEGIN; ...; COMMIT
		for _, user := range [][2]string{{"ann", "Rome"}, {"bob", "Oslo"}, {"eve", "Oslo"}, {"ann", "Oslo"}} {
			if err := putUser(tx, user[0], user[1]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// SELECT name FROM user WHERE city = 'Oslo' ORDER BY name LIMIT 2
	err = db.View(func(tx *dbm.Tx) error {
		left := 2
		for key := range tx.Prefix([]byte("city/Oslo/")) {
			fmt.Printf("%s\n", key[len("city/Oslo/"):])
			if left--; left == 0 {
				break
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// ann
	// bob
}

// TestPagesOfComingFrom: each block of Go in docs/coming-from stands in this file, whose examples run, so it compiles and does what it should.
func TestPagesOfComingFrom(t *testing.T) {
	source, err := os.ReadFile("example_coming_from_test.go")
	require.NoError(t, err)
	pages, err := filepath.Glob("../docs/coming-from/*.md")
	require.NoError(t, err)
	require.Greater(t, len(pages), 4)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		parts := strings.Split(string(text), "\n```")
		blocks := 0
		for i := 1; i < len(parts); i += 2 {
			block, ok := strings.CutPrefix(parts[i], "go\n")
			if !ok {
				continue
			}
			blocks++
			inner := "\t" + strings.ReplaceAll(strings.ReplaceAll(block, "\n", "\n\t"), "\n\t\n", "\n\n")
			require.True(t, strings.Contains(string(source), "\n"+block+"\n") || strings.Contains(string(source), "\n"+inner+"\n"),
				"%s: this is not in the examples:\n%s", page, block)
		}
		if filepath.Base(page) != "README.md" {
			require.Positive(t, blocks, page)
		}
	}
}
