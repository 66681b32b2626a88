package dbm_test

import (
	"fmt"
	"log"
	"log/slog"
	"os"

	"flashdbm/dbm"
)

// Options.Events is a function that is called with each event of the database, from another goroutine. Only Close
// waits for it, for up to a second.
func ExampleOptions_events() {
	db, err := dbm.OpenMemory(&dbm.Options{Events: func(e dbm.Event) {
		switch {
		case e.Level() >= slog.LevelWarn:
			fmt.Println("look at this:", e)
		case e.Kind == dbm.EventOpen, e.Kind == dbm.EventClose:
			fmt.Println(e.Kind)
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := db.Put([]byte("apple"), []byte("red")); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// open
	// close
}

// Without Options.Events, events go to the default logger of package slog. LogEvents sends them to another logger,
// here one that writes JSON.
func ExampleLogEvents() {
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	db, err := dbm.OpenMemory(&dbm.Options{Events: dbm.LogEvents(logger)})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
}

// Stats is cheap, and it returns even while writers are blocked.
func ExampleDB_Stats() {
	db, remove := newExample()
	defer remove()
	put(db, "apple", "red", "banana", "yellow")
	put(db, "apple", "green")
	s := db.Stats()
	fmt.Println(s.Records, "records,", s.Commits, "commits,", s.PutBytes, "bytes put, failed:", s.Failed != "")
	// Output: 2 records, 2 commits, 30 bytes put, failed: false
}
