package dbm_test

import (
	"fmt"
	"log"
	"sync"
	"time"

	"flashdbm/dbm"
)

// Increment can be called by many goroutines at once. No increment is lost.
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

// The number for a new record and the record itself are committed in one transaction. The numbers have no gaps,
// because a transaction that is rolled back uses no number.
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

// A Sequence reserves its numbers in blocks, here of a hundred, with one commit for each block.
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
	fmt.Println(ids.Release()) // returns the unused rest of the block
	taken, err = db.Get([]byte("last id"))
	fmt.Printf("%s %v\n", taken, err)
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 100 <nil>
	// <nil>
	// 2 <nil>
}

// This deletes every log record older than a given day, without reading which ones exist.
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

// A nil old value means that the record must not exist. Whoever succeeds in storing its own name there holds the
// lock.
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

// A batch collects operations over any length of time and commits them as one transaction. Then it is empty and can
// be used again.
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

// Two goroutines each count a part of the records in the same snapshot, while other records are written.
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

// The newest record of a series is the last one with the prefix of the series.
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

// Keys lists keys without reading their values.
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

// One goroutine writes many records without waiting for the device after each of them. A function is called for
// each record once the record would survive a power failure.
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

// A database in memory suits tests: it has no file, and nothing has to be removed afterwards.
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

// One transaction can use several keyspaces, here two and the default one.
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

// A new version of a keyspace is filled while the old one is in use, and then replaces it in one transaction.
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

// Sessions expire half an hour after they were last used.
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

	// Login attempts are counted for one minute, beginning with the first: Increment does not change when a record
	// expires.
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
