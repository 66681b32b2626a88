package dbm_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"flashdbm/dbm"
)

// One place of the file is damaged. CheckAll reports which range of keys is affected. Salvage copies all other
// records to a new database.
func ExampleSalvage() {
	dir, err := os.MkdirTemp("", "flashdbm")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path, rescued := filepath.Join(dir, "app.fdbm"), filepath.Join(dir, "rescued.fdbm")
	db, err := dbm.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *dbm.Tx) error {
		for i := range 1000 {
			if err := tx.Put(fmt.Appendf(nil, "key %04d", i), []byte("value")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}

	file, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	at := bytes.LastIndex(file, []byte("key 0500")) // in a leaf of the tree
	clear(file[at : at+100])
	if err := os.WriteFile(path, file, 0o600); err != nil {
		log.Fatal(err)
	}

	if db, err = dbm.Open(path, &dbm.Options{ReadOnly: true}); err != nil {
		log.Fatal(err)
	}
	err = db.CheckAll(context.Background(), func(d dbm.Damage) {
		lost := bytes.Compare(d.From, []byte("key 0500")) <= 0 && bytes.Compare([]byte("key 0500"), d.To) < 0
		fmt.Println("damage covers key 0500:", lost)
	})
	if err != nil {
		log.Fatal(err)
	}
	db.Close()

	s, err := dbm.Salvage(context.Background(), path, rescued, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pages of the tree that cannot be read:", s.DamagedTree)
	if db, err = dbm.Open(rescued, nil); err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ok, err := db.Has([]byte("key 0001"))
	fmt.Println("key 0001 is there:", ok, err)
	ok, err = db.Has([]byte("key 0500"))
	fmt.Println("key 0500 is there:", ok, err)

	// Output:
	// damage covers key 0500: true
	// pages of the tree that cannot be read: 1
	// key 0001 is there: true <nil>
	// key 0500 is there: false <nil>
}
