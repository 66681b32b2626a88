package dbm_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"strings"

	"flashdbm/dbm"
)

// Load fills an empty database from a text with one record per line. If a line has the wrong form, the iterator
// stops the load by canceling its context.
func ExampleDB_Load() {
	db, err := dbm.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	text := "cherry red\napple green\nbanana yellow\n"
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	records := func(yield func(key, value []byte) bool) {
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Scan() {
			key, value, ok := strings.Cut(lines.Text(), " ")
			if !ok {
				fail(fmt.Errorf("no record: %q", lines.Text()))
				return
			}
			if !yield([]byte(key), []byte(value)) {
				return
			}
		}
	}
	if err := db.Load(ctx, records, dbm.LoadOptions{}); err != nil {
		log.Fatal(err)
	}

	err = db.View(func(tx *dbm.Tx) error {
		for key, value := range tx.All() {
			fmt.Printf("%s %s\n", key, value)
		}
		return tx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple green
	// banana yellow
	// cherry red
}

// With LoadOptions.Replace, Load replaces all records of a keyspace in one step.
func ExampleKeyspace_Load() {
	db, err := dbm.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	load := func(prices map[string]string) error {
		return db.Keyspace("prices").Load(context.Background(), func(yield func(key, value []byte) bool) {
			for fruit, price := range prices {
				if !yield([]byte(fruit), []byte(price)) {
					return
				}
			}
		}, dbm.LoadOptions{Replace: true})
	}
	if err := load(map[string]string{"apple": "1.20", "cherry": "6.90"}); err != nil {
		log.Fatal(err)
	}
	if err := load(map[string]string{"apple": "1.30", "banana": "0.80"}); err != nil {
		log.Fatal(err)
	}

	err = db.Keyspace("prices").View(func(tx *dbm.Tx) error {
		for fruit, price := range tx.All() {
			fmt.Printf("%s %s\n", fruit, price)
		}
		return tx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// apple 1.30
	// banana 0.80
}
