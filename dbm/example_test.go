package dbm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"flashdbm/dbm"
)

// newExample opens a new database in a temporary directory. remove closes it and removes the directory.
func newExample() (db *dbm.DB, remove func()) {
	dir, err := os.MkdirTemp("", "flashdbm-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err = dbm.Open(filepath.Join(dir, "example.fdbm"), nil)
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		if err := errors.Join(db.Close(), os.RemoveAll(dir)); err != nil {
			log.Fatal(err)
		}
	}
}

// put stores pairs of keys and values in one transaction.
func put(db *dbm.DB, pairs ...string) {
	err := db.Update(func(tx *dbm.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			if err := tx.Put([]byte(pairs[i]), []byte(pairs[i+1])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "flashdbm-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "fruit.fdbm")

	db, err := dbm.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		log.Fatal(err)
	}
	_, err = dbm.Open(path, nil)
	fmt.Println("while it is open:", errors.Is(err, dbm.ErrLocked))
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}

	db, err = dbm.Open(path, &dbm.Options{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	value, err := db.Get([]byte("apple"))
	fmt.Printf("opened again: %s, %v\n", value, err)
	_, err = db.Get([]byte("plum"))
	fmt.Println("no such key:", errors.Is(err, dbm.ErrNotFound))
	// Output:
	// while it is open: true
	// opened again: red, <nil>
	// no such key: true
}

// Two counters are changed together: both or neither, whatever happens. The function may run again after a
// conflict, so it computes everything from what it reads.
func ExampleDB_Update() {
	db, remove := newExample()
	defer remove()
	put(db, "alice", "100", "bob", "0")

	transfer := func(from, to string, amount int) error {
		return db.Update(func(tx *dbm.Tx) error {
			balance := map[string]int{}
			for _, name := range []string{from, to} {
				text, err := tx.Get([]byte(name))
				if err != nil {
					return err
				}
				if balance[name], err = strconv.Atoi(string(text)); err != nil {
					return err
				}
			}
			if balance[from] < amount {
				return errors.New("not enough money")
			}
			if err := tx.Put([]byte(from), []byte(strconv.Itoa(balance[from]-amount))); err != nil {
				return err
			}
			return tx.Put([]byte(to), []byte(strconv.Itoa(balance[to]+amount)))
		})
	}
	fmt.Println(transfer("alice", "bob", 70))
	fmt.Println(transfer("alice", "bob", 70))

	alice, _ := db.Get([]byte("alice"))
	bob, _ := db.Get([]byte("bob"))
	fmt.Printf("alice %s, bob %s\n", alice, bob)
	// Output:
	// <nil>
	// not enough money
	// alice 30, bob 70
}

// A View sees the database as of one moment. It does not see what others commit meanwhile.
func ExampleDB_View() {
	db, remove := newExample()
	defer remove()
	put(db, "apple", "red")

	err := db.View(func(tx *dbm.Tx) error {
		put(db, "apple", "green", "pear", "yellow")

		value, err := tx.Get([]byte("apple")) // valid until the function returns
		if err != nil {
			return err
		}
		n, err := tx.Len()
		if err != nil {
			return err
		}
		fmt.Printf("then: apple is %s, records: %d\n", value, n)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("apple"))
	fmt.Printf("now: apple is %s, %v\n", value, err)
	// Output:
	// then: apple is red, records: 1
	// now: apple is green, <nil>
}

// A cursor is positioned by key, so the record at which it is may be deleted meanwhile.
func ExampleTx_Cursor() {
	db, remove := newExample()
	defer remove()
	put(db, "a", "1", "b", "2", "c", "3", "d", "4")

	err := db.Update(func(tx *dbm.Tx) error {
		c := tx.Cursor()
		for ok := c.Seek([]byte("b")); ok; ok = c.Next() {
			fmt.Printf("up %s=%s\n", c.Key(), c.Value())
			if string(c.Key()) == "c" {
				if err := c.Delete(); err != nil {
					return err
				}
			}
		}
		for ok := c.Last(); ok; ok = c.Prev() {
			fmt.Printf("down %s=%s\n", c.Key(), c.Value())
		}
		return c.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// up b=2
	// up c=3
	// up d=4
	// down d=4
	// down b=2
	// down a=1
}

// Keys that begin with a common name serve as tables or buckets.
func ExampleTx_Prefix() {
	db, remove := newExample()
	defer remove()
	put(db, "city/Berlin", "3.7", "city/Tokyo", "14", "country/Japan", "124")

	err := db.View(func(tx *dbm.Tx) error {
		for key, value := range tx.Prefix([]byte("city/")) {
			fmt.Printf("%s: %s\n", key, value)
		}
		return nil // an error of the iteration is returned by View
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// city/Berlin: 3.7
	// city/Tokyo: 14
}

// Numbers stored as big-endian bytes are sorted as numbers.
func ExampleTx_Range() {
	db, remove := newExample()
	defer remove()
	number := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

	err := db.Update(func(tx *dbm.Tx) error {
		for _, n := range []uint64{7, 300, 20, 1000} {
			if err := tx.Put(number(n), nil); err != nil {
				return err
			}
		}
		for key := range tx.Range(number(10), number(1000)) {
			fmt.Println(binary.BigEndian.Uint64(key))
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 20
	// 300
}

// A transaction from Begin must be ended by its caller. Conflicts are reported by Commit, which then has not
// changed anything.
func ExampleDB_Begin() {
	db, remove := newExample()
	defer remove()
	put(db, "stock", "1")

	sell := func(tx *dbm.Tx) error {
		if _, err := tx.Get([]byte("stock")); err != nil {
			return err
		}
		return tx.Delete([]byte("stock"))
	}
	first, err := db.Begin(dbm.TxOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer first.Rollback() // does nothing after Commit
	second, err := db.Begin(dbm.TxOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Rollback()

	if err := errors.Join(sell(first), sell(second)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("first:", first.Commit())
	fmt.Println("second conflicts:", errors.Is(second.Commit(), dbm.ErrConflict))
	// Output:
	// first: <nil>
	// second conflicts: true
}

// At least one doctor has to be on call. Each of two transactions sees two and takes one off. They write different
// keys, so with snapshot isolation both commit and nobody is on call. Serializable does not allow that.
func ExampleTxOptions_serializable() {
	db, remove := newExample()
	defer remove()

	leave := func(tx *dbm.Tx, name string) error {
		onCall := 0
		for range tx.Prefix([]byte("on call/")) {
			onCall++
		}
		if onCall < 2 {
			return errors.New("somebody has to stay")
		}
		return tx.Delete([]byte("on call/" + name))
	}
	for _, serializable := range []bool{false, true} {
		put(db, "on call/alice", "", "on call/bob", "")
		alice, err := db.Begin(dbm.TxOptions{Serializable: serializable})
		if err != nil {
			log.Fatal(err)
		}
		bob, err := db.Begin(dbm.TxOptions{Serializable: serializable})
		if err != nil {
			log.Fatal(err)
		}
		if err := errors.Join(leave(alice, "alice"), leave(bob, "bob"), alice.Commit()); err != nil {
			log.Fatal(err)
		}
		conflict := errors.Is(bob.Commit(), dbm.ErrConflict)
		n, err := db.Len()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("serializable %v: conflict %v, on call: %d\n", serializable, conflict, n)
	}
	// Output:
	// serializable false: conflict false, on call: 0
	// serializable true: conflict true, on call: 1
}
