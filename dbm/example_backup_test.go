package dbm_test

import (
	"bytes"
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
	go func() {
		_, err := db.Backup(context.Background(), w)
		w.CloseWithError(err)
	}()
	restored := filepath.Join(dir, "restored.fdbm")
	if _, err := dbm.Restore(context.Background(), restored, r); err != nil {
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

// BackupSince writes what has changed since the last backup; ApplyBackup brings a copy up to date.
func ExampleDB_BackupSince() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := dbm.Open(filepath.Join(dir, "app.fdbm"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	var full, increment bytes.Buffer
	monday, err := db.Backup(ctx, &full)
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		log.Fatal(err)
	}
	if _, err = db.BackupSince(ctx, monday, &increment); err != nil {
		log.Fatal(err)
	}

	path := filepath.Join(dir, "restored.fdbm")
	if _, err := dbm.Restore(ctx, path, &full, &increment); err != nil {
		log.Fatal(err)
	}
	restored, err := dbm.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	v, err := restored.Get([]byte("apple"))
	fmt.Printf("%s %v\n", v, err)
	// Output: red <nil>
}
