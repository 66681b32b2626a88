package dbm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"flashdbm/dbm"
)

// Backup writes to any io.Writer, here a pipe, while the database is in use. Restore verifies the backup and makes
// a new database from it.
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

// BackupSince writes what has changed since an earlier backup. Restore applies such increments after the full
// backup.
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

// Follow keeps a copy of a database up to date: five times a second, the copy receives what has been committed
// since.
func ExampleDB_Follow() {
	dir, err := os.MkdirTemp("", "flashdbm")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := dbm.Open(filepath.Join(dir, "fruit.fdbm"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	// The copy is made from a backup. Restore returns the token from which to follow.
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	go func() {
		_, err := db.Backup(ctx, w)
		w.CloseWithError(err)
	}()
	token, err := dbm.Restore(ctx, filepath.Join(dir, "copy.fdbm"), r)
	if err != nil {
		log.Fatal(err)
	}
	standby, err := dbm.Open(filepath.Join(dir, "copy.fdbm"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer standby.Close()

	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		log.Fatal(err)
	}
	err = db.Follow(ctx, token, 200*time.Millisecond, func(have dbm.Token, increment io.Reader) error {
		now, err := standby.ApplyBackup(ctx, have, increment)
		if err != nil {
			return err
		}
		token = now // store it with the copy, to continue from it after a restart
		cancel()    // end the example after one increment
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	color, err := standby.Get([]byte("apple"))
	fmt.Println(string(color), err)
	// Output: red <nil>
}
