package dbm_test

import (
	"fmt"
	"log"
	"sync"
	"time"

	"flashdbm/dbm"
)

// Many goroutines count at once, and no count is lost.
func ExampleDB_Increment() {
	db, remove := newExample()
	defer remove()

	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				if _, err := db.Increment([]byte("visits"), 1); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	wg.Wait()
	visits, err := db.Get([]byte("visits"))
	fmt.Printf("%s %v\n", visits, err)
	// Output:
	// 100 <nil>
}

// A number for each new record, and the record, are committed together: numbers have no gaps, for what is rolled back takes none.
func ExampleTx_Increment() {
	db, remove := newExample()
	defer remove()

	add := func(name string) error {
		return db.Update(func(tx *dbm.Tx) error {
			id, err := tx.Increment([]byte("last user"), 1)
			if err != nil {
				return err
			}
			return tx.Put(fmt.Appendf(nil, "user/%06d", id), []byte(name))
		})
	}
	for _, name := range []string{"alice", "bob"} {
		if err := add(name); err != nil {
			log.Fatal(err)
		}
	}
	err := db.View(func(tx *dbm.Tx) error {
		for key, name := range tx.Prefix([]byte("user/")) {
			fmt.Printf("%s %s\n", key, name)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// user/000001 alice
	// user/000002 bob
}

// Numbers come from blocks of a hundred: one commit for each block.
func ExampleDB_Sequence() {
	db, remove := newExample()
	defer remove()

	ids, err := db.Sequence([]byte("last id"), 100)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		id, err := ids.Next()
		fmt.Println(id, err)
	}
	taken, err := db.Get([]byte("last id"))
	fmt.Printf("%s %v\n", taken, err)
	fmt.Println(ids.Release()) // what is left of the block
	taken, err = db.Get([]byte("last id"))
	fmt.Printf("%s %v\n", taken, err)
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 100 <nil>
	// <nil>
	// 2 <nil>
}

// All that is older than a day goes, whatever there is.
func ExampleDB_DeleteRange() {
	db, remove := newExample()
	defer remove()

	for _, key := range []string{"log/2026-11-24", "log/2026-11-25", "log/2026-11-26", "user/ann"} {
		if err := db.Put([]byte(key), nil); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.DeleteRange([]byte("log/"), []byte("log/2026-11-26")); err != nil {
		log.Fatal(err)
	}
	err := db.View(func(tx *dbm.Tx) error {
		for key := range tx.Keys(nil, nil) {
			fmt.Printf("%s\n", key)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// log/2026-11-26
	// user/ann
	// <nil>
}

// Nil stands for no record: who swaps it for a name of his own has the lock.
func ExampleDB_CompareAndSwap() {
	db, remove := newExample()
	defer remove()

	lock := []byte("lock")
	for _, name := range []string{"alice", "bob"} {
		mine, err := db.CompareAndSwap(lock, nil, []byte(name))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s has it: %v\n", name, mine)
	}
	handed, err := db.CompareAndSwap(lock, []byte("alice"), []byte("bob"))
	fmt.Println("alice hands it to bob:", handed, err)
	// Output:
	// alice has it: true
	// bob has it: false
	// alice hands it to bob: true <nil>
}

func ExampleDB_Append() {
	db, remove := newExample()
	defer remove()

	for _, line := range []string{"started\n", "stopped\n"} {
		if err := db.Append([]byte("journal"), []byte(line)); err != nil {
			log.Fatal(err)
		}
	}
	journal, err := db.Get([]byte("journal"))
	fmt.Printf("%s%v\n", journal, err)
	// Output:
	// started
	// stopped
	// <nil>
}

func ExampleDB_GetAndPut() {
	db, remove := newExample()
	defer remove()

	for _, colour := range []string{"green", "red"} {
		before, err := db.GetAndPut([]byte("apple"), []byte(colour))
		if err != nil {
			log.Fatal(err)
		}
		if before == nil {
			fmt.Printf("it had none and is %s\n", colour)
		} else {
			fmt.Printf("it was %s and is %s\n", before, colour)
		}
	}
	// Output:
	// it had none and is green
	// it was green and is red
}

// A batch is filled at leisure, committed whole, and filled again.
func ExampleDB_Batch() {
	db, remove := newExample()
	defer remove()

	readings := make(chan int)
	go func() {
		defer close(readings)
		for n := range 5 {
			readings <- n * n
		}
	}()
	batch, n := db.Batch(), 0
	for reading := range readings {
		if err := batch.Put(fmt.Appendf(nil, "reading/%03d", n), fmt.Append(nil, reading)); err != nil {
			log.Fatal(err)
		}
		if n++; batch.Len() == 3 {
			if err := batch.Commit(); err != nil {
				log.Fatal(err)
			}
		}
	}
	stored, err := db.Len()
	fmt.Printf("stored %d, still in the batch %d, %v\n", stored, batch.Len(), err)
	if err := batch.Commit(); err != nil {
		log.Fatal(err)
	}
	stored, err = db.Len()
	fmt.Printf("stored %d, still in the batch %d, %v\n", stored, batch.Len(), err)
	// Output:
	// stored 3, still in the batch 2, <nil>
	// stored 5, still in the batch 0, <nil>
}

// Two goroutines count the records of one moment, each a part, while others are written.
func ExampleDB_Snapshot() {
	db, remove := newExample()
	defer remove()
	put(db, "apple", "red", "banana", "yellow", "pear", "green", "plum", "blue")

	snapshot, err := db.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	put(db, "cherry", "red", "quince", "yellow")

	bounds := [][]byte{nil, []byte("m"), nil}
	counts := make([]int, 2)
	var wg sync.WaitGroup
	for i := range counts {
		wg.Go(func() {
			err := snapshot.View(func(tx *dbm.Tx) error {
				for range tx.Range(bounds[i], bounds[i+1]) {
					counts[i]++
				}
				return nil
			})
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(counts)
	// Output:
	// [2 2]
}

// The newest record of a series is the last one with its prefix.
func ExamplePrefixEnd() {
	db, remove := newExample()
	defer remove()
	put(db, "oslo/2026-01", "-4", "oslo/2026-02", "-3", "rome/2026-01", "8")

	err := db.View(func(tx *dbm.Tx) error {
		series := []byte("oslo/")
		for key, value := range tx.Backward(series, dbm.PrefixEnd(series)) {
			fmt.Printf("%s %s\n", key, value)
			break
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// oslo/2026-02 -3
}

// Keys are counted without a look at their values.
func ExampleTx_Keys() {
	db, remove := newExample()
	defer remove()
	put(db, "film/1", "gigabytes", "film/2", "gigabytes", "song/1", "megabytes")

	err := db.View(func(tx *dbm.Tx) error {
		for key := range tx.Keys([]byte("film/"), dbm.PrefixEnd([]byte("film/"))) {
			fmt.Printf("%s\n", key)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// film/1
	// film/2
}

// One goroutine writes record after record and does not wait for the device in between. It learns of each when it survives a power cut.
func ExampleDB_PutAsync() {
	db, remove := newExample()
	defer remove()

	safe := make(chan int, 100)
	for i := range 100 {
		err := db.PutAsync(fmt.Appendf(nil, "event %03d", i), []byte("payload"), func(err error) {
			if err != nil {
				log.Fatal(err)
			}
			safe <- i
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for i := range 100 {
		if got := <-safe; got != i {
			log.Fatal("out of order")
		}
	}
	fmt.Println("100 events are safe")
	// Output: 100 events are safe
}

// A database for a test: no file, and nothing to remove.
func ExampleOpenMemory() {
	db, err := dbm.OpenMemory(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put([]byte("key"), []byte("value")); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get([]byte("key"))
	fmt.Printf("%s %v\n", value, err)
	// Output:
	// value <nil>
}

// Two keyspaces, and the default one, in one transaction.
func ExampleTx_Keyspace() {
	db, err := dbm.OpenMemory(&dbm.Options{Events: func(dbm.Event) {}})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for _, name := range []string{"users", "sessions"} {
		if err := db.CreateKeyspace(name); err != nil {
			log.Fatal(err)
		}
	}
	login := func(name string) error {
		return db.Update(func(tx *dbm.Tx) error {
			users, err := tx.Keyspace("users")
			if err != nil {
				return err
			}
			sessions, err := tx.Keyspace("sessions")
			if err != nil {
				return err
			}
			n, err := tx.Increment([]byte("logins"), 1)
			if err != nil {
				return err
			}
			if err := users.Put([]byte(name), []byte("online")); err != nil {
				return err
			}
			return sessions.Put(fmt.Append(nil, n), []byte(name))
		})
	}
	for _, name := range []string{"ann", "bob"} {
		if err := login(name); err != nil {
			log.Fatal(err)
		}
	}
	err = db.Keyspace("sessions").View(func(tx *dbm.Tx) error {
		for n, name := range tx.All() {
			fmt.Printf("%s %s\n", n, name)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 ann
	// 2 bob
	// <nil>
}

// A keyspace is filled beside the one in use, and takes its place in one step.
func ExampleDB_CreateKeyspace() {
	db, err := dbm.OpenMemory(&dbm.Options{Events: func(dbm.Event) {}})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for _, name := range []string{"prices", "new prices"} {
		if err := db.CreateKeyspace(name); err != nil {
			log.Fatal(err)
		}
	}
	if err := db.Keyspace("new prices").Put([]byte("apple"), []byte("3")); err != nil {
		log.Fatal(err)
	}
	err = db.Update(func(tx *dbm.Tx) error {
		if err := tx.DropKeyspace("prices"); err != nil {
			return err
		}
		return tx.RenameKeyspace("new prices", "prices")
	})
	if err != nil {
		log.Fatal(err)
	}
	price, err := db.Keyspace("prices").Get([]byte("apple"))
	fmt.Printf("%s %v\n", price, err)
	fmt.Println(db.Keyspaces())
	// Output:
	// 3 <nil>
	// [prices] <nil>
}

// Sessions that end by themselves, half an hour after they were last used.
func ExampleDB_PutTTL() {
	db, remove := newExample()
	defer remove()

	touch := func(session string) error {
		return db.PutTTL([]byte("session/"+session), []byte("ann"), 30*time.Minute)
	}
	if err := touch("17"); err != nil {
		log.Fatal(err)
	}
	left, expires, err := db.TTL([]byte("session/17"))
	fmt.Println(left.Round(time.Minute), expires, err)

	// Attempts to log in are counted for a minute from the first one on: Increment leaves the time of a record as it is.
	attempt := func(user string) (n int64, err error) {
		key := []byte("attempts/" + user)
		err = db.Update(func(tx *dbm.Tx) error {
			if n, err = tx.Increment(key, 1); err == nil && n == 1 {
				err = tx.PutTTL(key, []byte("1"), time.Minute)
			}
			return err
		})
		return n, err
	}
	for range 3 {
		n, err := attempt("ann")
		fmt.Println(n, err)
	}
	// Output:
	// 30m0s true <nil>
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}
