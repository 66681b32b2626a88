package dbm_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"flashdbm/dbm"
)

// A backup goes to any writer, here a pipe, while the database is in use. Restore verifies it and makes a new database of it.
func ExampleDB_Backup() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := dbm.Open(filepath.Join(dir, "app.fdbm"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		log.Fatal(err)
	}

	r, w := io.Pipe()
	go func() { w.CloseWithError(db.Backup(context.Background(), w)) }()
	restored := filepath.Join(dir, "restored.fdbm")
	if err := dbm.Restore(context.Background(), restored, r); err != nil {
		log.Fatal(err)
	}

	other, err := dbm.Open(restored, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	v, err := other.Get([]byte("apple"))
	fmt.Printf("%s %v\n", v, err)
	// Output: red <nil>
}
